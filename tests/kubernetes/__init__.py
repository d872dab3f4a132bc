"""Against a real cluster, which KUBECONFIG names; without it every test here is skipped."""
