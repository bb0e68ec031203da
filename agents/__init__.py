"""What runs on a node: the agent service, captures, kernel settings and traffic."""
