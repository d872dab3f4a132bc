"""What is measured, against whom. `python -m benchmarks.overhead` prints every bar; results/ keeps the last figures."""
