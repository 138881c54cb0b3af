"""Many runs: suites (which ones), engines (where they run), status (how far they are)."""
