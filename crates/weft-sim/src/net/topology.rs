//! Shapes of networks that the literature measures with.

use super::discipline::Discipline;
use super::link::LinkSpec;
use super::network::{LinkId, Net};
use super::twins::Fifo;

/// Many flows through one bottleneck: data passes it, acknowledgements come back over a wire.
#[derive(Clone, Copy, Debug)]
pub struct Dumbbell {
    /// What all data passes.
    pub bottleneck: LinkId,
    /// What all acknowledgements pass.
    pub back: LinkId,
}

impl Dumbbell {
    /// Adds a bottleneck with its queue, and a way back that takes `back_ns`.
    pub fn new(net: &mut Net, bottleneck: LinkSpec, queue: Box<dyn Discipline>, back_ns: u64) -> Self {
        Self { bottleneck: net.add_link(bottleneck, queue), back: add_wire(net, back_ns) }
    }
}

/// A link that only takes time; its queue is never used.
pub(super) fn add_wire(net: &mut Net, delay_ns: u64) -> LinkId {
    net.add_link(LinkSpec::wire(delay_ns), Box::new(Fifo::new(0)))
}
