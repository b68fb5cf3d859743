"""The demo's data set through all seven pipelines: python -m examples.pipelines_demo."""
