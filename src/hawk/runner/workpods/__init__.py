"""Workers in pods of their own (`runner: {workers: pods}`).

The supervisor starts, watches and signals a small process for each, its *stand-in* (`standin`), as if that were the worker. The
stand-in makes the worker's pod (`pods`), goes to it through the cluster's API, and carries what belongs to both: files
(`files`), the rows of running attempts (`buffers`), sockets (`sockets`), orders (`messages`). In the pod runs `pod`.
"""
