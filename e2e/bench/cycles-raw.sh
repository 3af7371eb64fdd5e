#!/bin/sh
# One actor of the raw side of the cycles: restore, a request that churns, pause, checkpoint, delete, a new sandbox,
# one second of waiting. Prints one line for each cycle that is done. It begins and ends with a created sandbox; SIGTERM
# lets it end after the cycle that it is in.
#
# RUNSC ROOT ID BUNDLE IMAGES NETNS INSIDE GATEWAY CHURN_MIB END_MS
set -e
RUNSC=$1 ROOT=$2 ID=$3 BUNDLE=$4 IMAGES=$5 NETNS=$6 INSIDE=$7 GATEWAY=$8 CHURN_MIB=$9
shift 9
END_MS=$1
trap 'END_MS=0' TERM
# an image remembers of what kind the standard streams were
runsc() {
  "$RUNSC" --root="$ROOT" --overlay2=root:memory --platform=systrap --network=sandbox "$@" \
    </dev/null >>"$IMAGES/out" 2>>"$IMAGES/err"
}
while [ "$(date +%s%3N)" -lt "$END_MS" ]; do
  ip -n "$NETNS" addr replace "$INSIDE/30" dev eth0
  ip -n "$NETNS" route replace default via "$GATEWAY"
  runsc --allow-live-tcp-migration=false restore --detach --background --bundle="$BUNDLE" --image-path="$IMAGES/now" "$ID"
  curl -sS --fail --retry 100 --retry-delay 0 --retry-connrefused --retry-max-time 30 -o "$IMAGES/answer" \
    -X POST "http://$INSIDE:8080/churn?mib=$CHURN_MIB&kind=random"
  mkdir "$IMAGES/next"
  runsc pause "$ID"
  runsc checkpoint --leave-running --image-path="$IMAGES/next" "$ID"
  runsc delete --force "$ID"
  rm -r "$IMAGES/now"
  mv "$IMAGES/next" "$IMAGES/now"
  runsc create --bundle="$BUNDLE" "$ID"
  echo done
  sleep 1
done
