"""The provider `pod` against a cluster in this process."""
