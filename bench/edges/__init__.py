"""Where deployments live: late services, networks that drop packets, disks that are full."""
