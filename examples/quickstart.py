# SPDX-License-Identifier: Apache-2.0
"""Three turns of one conversation: the first is placed, the others go home.

This is the code of README.md.
"""

import limpet

router = limpet.Router(["gpu0", "gpu1"], max_num_seqs=32)
for _turn in range(3):
    with router.route("conversation-key") as lease:  # picks a replica, pins, takes a slot
        print(f"{lease.outcome.name}: send to {lease.replica.name}")
