#!/usr/bin/env bash
# Installs the peers of packets.py from Debian: DPDK's testpmd, Open vSwitch with DPDK, and what tells the kernel to route,
# to tunnel (ip) and to filter (iptables, nft). Needs root.
set -euo pipefail
packages=()
command -v dpdk-testpmd >/dev/null || packages+=(dpdk dpdk-dev)
[ -x /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] || packages+=(openvswitch-switch-dpdk)
command -v ip >/dev/null || packages+=(iproute2)
command -v iptables-legacy-restore >/dev/null || packages+=(iptables)
command -v nft >/dev/null || packages+=(nftables)
if [ ${#packages[@]} = 0 ]; then
  echo "ready: nothing is missing"
  exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${packages[*]}; installing them needs root and apt" >&2
  exit 1
fi
apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends \
  "${packages[@]}" >/dev/null
echo "ready: installed ${packages[*]}"
