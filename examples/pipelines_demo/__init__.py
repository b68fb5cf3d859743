"""The demo's data set through all six pipelines: python -m examples.pipelines_demo."""
