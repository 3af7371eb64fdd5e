/**
 * What a newcomer tries first, ready to be pasted into a shell with KUBECONFIG, PATH and PORT set as `npm start` prints
 * them. README.md shows the same lines.
 */
export const tour = `kubectl get templates,actors          # the counter: a Template (the program) and an Actor (one instance)
curl counter.default.actors.localhost:$PORT   # the first request starts it: {"memory":1,"file":1,"pid":1,…}
curl counter.default.actors.localhost:$PORT   # {"memory":2,"file":2,"pid":1,…}

kubectl ate suspend counter           # memory, files and process sleep; its place on the node is free
kubectl ate get counter               # SUSPENDED, its newest snapshot PENDING: on the node's disk, not yet in the store
kubectl get snapshots                 # 10 s later counter-1 is listed: an object is made when all is in the store

curl counter.default.actors.localhost:$PORT   # {"memory":3,"file":3,"pid":1,…}: it counts on, the same process
kubectl ate log counter               # what the program wrote
kubectl describe actor counter        # conditions, snapshots, the last operation
`;
