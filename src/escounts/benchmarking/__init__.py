"""How fast this machine counts: `bench()` times every engine on the same video, each in a process of its own."""
