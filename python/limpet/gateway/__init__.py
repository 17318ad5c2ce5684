# SPDX-License-Identifier: Apache-2.0
"""The reference gateway, `limpet serve`: a proxy in front of engines, with the router inside.

It is what runs where there is no gateway yet, and the model for those who embed the router in one
of their own. Protocol work is its libraries': uvicorn, aiohttp's client, Starlette for the admin
surface. Needs `pip install 'limpet[gateway]'`. Import from its modules: app, settings, server.
"""
