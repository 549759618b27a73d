"""The charts of the page, each as a Vega-Lite document."""
