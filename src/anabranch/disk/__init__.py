"""Files that outlive the process: whole writes or none, checked records, one owner."""
