"""The `secemb` command: demonstration, benchmarks, test vectors and reports."""
