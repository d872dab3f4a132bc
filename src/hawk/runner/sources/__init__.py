"""What the supervisor's diagnosis reads evidence from: a file a source, each fills its part of the document."""
