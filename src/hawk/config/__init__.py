"""What people write: the eval-set YAML, and settings from the environment."""
