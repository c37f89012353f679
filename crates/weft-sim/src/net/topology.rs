//! The standard network topologies of the literature.

use super::discipline::Discipline;
use super::link::LinkSpec;
use super::network::{LinkId, Net};
use super::twins::Fifo;

/// Maximum number of ports per switch in a fat tree. The next power of two would have 65,536 hosts.
pub const FAT_TREE_PORTS_MAX: u32 = 32;

/// Many flows through one bottleneck. Acknowledgements return over a link without a queue.
#[derive(Clone, Copy, Debug)]
pub struct Dumbbell {
    /// The link that all data passes.
    pub bottleneck: LinkId,
    /// The link that all acknowledgements pass.
    pub back: LinkId,
}

/// Links in a row: one flow passes all of them, and one further flow passes each.
#[derive(Clone, Debug)]
pub struct ParkingLot {
    /// The links, in order.
    pub links: Vec<LinkId>,
    /// The link that all acknowledgements pass.
    pub back: LinkId,
}

/// A fat tree: switches of `k` ports in three layers connect `k^3 / 4` hosts at full bisection bandwidth. Source:
/// Al-Fares, Loukissas and Vahdat, SIGCOMM 2008.
#[derive(Clone, Debug)]
pub struct FatTree {
    k: u32,
    /// By host: the link to its switch, and the link from it.
    host_up: Vec<LinkId>,
    host_down: Vec<LinkId>,
    /// By edge switch and position in the pod: the link to the aggregation switch, and the link from it.
    edge_up: Vec<LinkId>,
    edge_down: Vec<LinkId>,
    /// By aggregation switch and position among its core switches: the link to the core, and the link from it.
    core_up: Vec<LinkId>,
    core_down: Vec<LinkId>,
}

impl Dumbbell {
    /// Adds a bottleneck with its queue, and a return path with the delay `back_ns`.
    pub fn new(net: &mut Net, bottleneck: LinkSpec, queue: Box<dyn Discipline>, back_ns: u64) -> Self {
        Self { bottleneck: net.add_link(bottleneck, queue), back: add_wire(net, back_ns) }
    }
}

impl ParkingLot {
    /// Adds links with their queues, and a return path with the delay `back_ns`.
    pub fn new(
        net: &mut Net,
        n_links: usize,
        mut link: impl FnMut() -> (LinkSpec, Box<dyn Discipline>),
        back_ns: u64,
    ) -> Self {
        let links = (0..n_links).map(|_| link()).map(|(spec, queue)| net.add_link(spec, queue)).collect();
        Self { links, back: add_wire(net, back_ns) }
    }
}

impl FatTree {
    /// Adds the links between switches of `k` ports and their hosts, each with its queue.
    ///
    /// # Panics
    /// If `k` is odd, below 2, or above [`FAT_TREE_PORTS_MAX`].
    pub fn new(net: &mut Net, k: u32, mut link: impl FnMut() -> (LinkSpec, Box<dyn Discipline>)) -> Self {
        assert!(
            k.is_multiple_of(2) && (2..=FAT_TREE_PORTS_MAX).contains(&k),
            "2 to {FAT_TREE_PORTS_MAX} ports"
        );
        let n = (k * k * k / 4) as usize;
        let mut row = || (0..n).map(|_| link()).map(|(spec, queue)| net.add_link(spec, queue)).collect();
        Self {
            k,
            host_up: row(),
            host_down: row(),
            edge_up: row(),
            edge_down: row(),
            core_up: row(),
            core_down: row(),
        }
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        self.host_up.len()
    }

    /// The path from one host to another. `choice` selects one of several shortest paths, the same in both directions.
    ///
    /// # Panics
    /// If the hosts are equal, or not in this tree.
    pub fn path(&self, from: usize, to: usize, choice: u32) -> Vec<LinkId> {
        assert!(from != to, "a host needs no network to talk to itself");
        let half = (self.k / 2) as usize;
        let (edge_from, edge_to) = (from / half, to / half);
        let (pod_from, pod_to) = (edge_from / half, edge_to / half);
        let (aggregation, core) = (choice as usize % half, choice as usize / half % half);
        let mut path = vec![self.host_up[from]];
        if edge_from != edge_to {
            path.push(self.edge_up[edge_from * half + aggregation]);
            if pod_from != pod_to {
                // A core switch links to the same aggregation position in each pod.
                path.push(self.core_up[(pod_from * half + aggregation) * half + core]);
                path.push(self.core_down[(pod_to * half + aggregation) * half + core]);
            }
            path.push(self.edge_down[edge_to * half + aggregation]);
        }
        path.push(self.host_down[to]);
        path
    }
}

/// A link that only delays; its queue is never used.
fn add_wire(net: &mut Net, delay_ns: u64) -> LinkId {
    net.add_link(LinkSpec::wire(delay_ns), Box::new(Fifo::new(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// If this fails, hosts do not reach each other, or not at the full rate of their links.
    #[test]
    fn fat_tree_has_its_links_and_paths() {
        let mut net = Net::new(1);
        let spec = LinkSpec::fixed(1_000_000_000, 1000);
        let tree = FatTree::new(&mut net, 4, || (spec.clone(), Box::new(Fifo::new(100))));
        assert_eq!(tree.hosts(), 16);
        assert_eq!([(0, 1), (0, 2), (0, 5)].map(|(a, b)| tree.path(a, b, 0).len()), [2, 4, 6]);
        let mut all = BTreeSet::new();
        for from in 0..16 {
            for to in (0..16).filter(|to| *to != from) {
                let ways: BTreeSet<Vec<LinkId>> = (0..4).map(|choice| tree.path(from, to, choice)).collect();
                let expected = [1, 2, 4][tree.path(from, to, 0).len() / 2 - 1];
                assert_eq!(ways.len(), expected, "{from} to {to}");
                all.extend(ways.into_iter().flatten());
            }
        }
        assert_eq!(all.len(), 6 * 16, "each link is on some way");
    }
}
