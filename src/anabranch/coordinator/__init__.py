"""The coordinator: catalog, deployment, monitoring. Control only: data flows without it."""
