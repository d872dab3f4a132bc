"""Files that go along with an eval set, to a pod or to a server elsewhere: which, packed, unpacked."""
