"""The coordinator as a process: its gate, its state folder, the sites that it starts."""
