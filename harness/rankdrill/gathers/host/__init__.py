"""What this machine tells: who is still there, what ended processes left, on what disks, in what pages of memory."""
