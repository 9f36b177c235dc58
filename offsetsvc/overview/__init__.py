"""What there is, and how it is: lists of a bounded cost for each page."""
