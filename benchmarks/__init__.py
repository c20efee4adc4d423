"""Speed of zerotail beside the functions that its users would call instead: see README.md."""
