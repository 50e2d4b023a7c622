"""Programs as tinygrad's users write them are run, not collected."""

collect_ignore = ["programs"]
