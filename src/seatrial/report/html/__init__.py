"""summary.html and the page of two campaigns: sections, charts as Vega-Lite documents, PDF and PNG."""
