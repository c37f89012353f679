//! Builds the graph of layers that a parser reads: the layers that the chain uses, and all on the paths to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use weft_core::inputs::InputSet;
use weft_core::wire::{FieldId, Next, Protocol, ProtocolId};
use weft_ir::ir::InputId;

/// A layer that a parser may reach: a protocol, and its level.
pub(super) type Node = (ProtocolId, u8);

/// Information about a layer that the chain wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedField {
    pub(super) input: InputId,
    pub(super) what: WantedPart,
    /// It is about the last such layer instead of the first.
    pub(super) last: bool,
    /// It needs both words of its slot, not only a number or a truth value.
    pub(super) place: bool,
}

/// The wanted part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedPart {
    /// Whether it is present.
    Presence,
    /// A field.
    Field(FieldId),
    /// Start of its header, and end of the layer: a [`weft_ir::program::InputLocation::Layer`].
    Header,
}

/// The layers that are read, and the edges between them.
#[derive(Debug)]
pub(super) struct Graph<'n> {
    pub(super) protocols: &'n [Protocol],
    /// The possible first layers of a frame.
    pub(super) roots: Vec<Node>,
    /// The wanted fields of each layer, in the order of the inputs.
    pub(super) wanted: BTreeMap<Node, Vec<WantedField>>,
    /// All layers, each before its successors except by `backs`.
    pub(super) order: Vec<Node>,
    /// Back edges: from a layer to one that may come before it.
    pub(super) backs: BTreeSet<(Node, Node)>,
    /// A layer may be in a first fragment.
    pub(super) has_fragments: bool,
}

impl<'n> Graph<'n> {
    /// Builds the graph for wanted fields, for frames that begin with one of the roots.
    pub(super) fn new(
        protocols: &'n [Protocol],
        roots: &[ProtocolId],
        wanted: BTreeMap<Node, Vec<WantedField>>,
    ) -> Self {
        let level_max = wanted.keys().map(|(_, level)| *level).max().unwrap_or(0);
        let mut graph = Self {
            protocols,
            roots: Vec::new(),
            wanted,
            order: Vec::new(),
            backs: BTreeSet::new(),
            has_fragments: false,
        };
        let useful = graph.layers_that_reach_wanted(level_max);
        graph.roots = roots.iter().map(|root| (*root, 0)).filter(|root| useful.contains(root)).collect();
        let (mut done, mut under_way) = (BTreeSet::new(), BTreeSet::new());
        for root in graph.roots.clone() {
            graph.visit(root, &useful, &mut done, &mut under_way);
        }
        graph.order.reverse();
        let is_fragmented = |node: &Node| protocols[usize::from(node.0.0)].more_fragments().is_some();
        let mut nodes = graph.order.iter().copied().filter(is_fragmented);
        graph.has_fragments = nodes.any(|node| graph.edges(node).next().is_some());
        graph
    }

    /// The edges from a layer to other layers of the graph, in order.
    pub(super) fn edges(&self, node: Node) -> impl Iterator<Item = (&'n Next, Node)> {
        let all = self.protocols[usize::from(node.0.0)].next.iter();
        all.map(move |next| (next, target(node, next))).filter(|(_, to)| self.order.contains(to))
    }

    pub(super) fn is_cyclic(&self) -> bool {
        !self.backs.is_empty()
    }

    /// Returns those of `requested_inputs` that every frame with these layers has ([`Graph::specialized_layers`]).
    /// This is a guess that matters only for speed.
    pub(super) fn specialized_inputs(&self, layers: &[Vec<Node>], requested_inputs: InputSet) -> InputSet {
        let of_all = |nodes: &Vec<Node>| {
            nodes.iter().fold(requested_inputs, |all, node| all & self.inputs_set_by(*node))
        };
        layers.iter().fold(InputSet::EMPTY, |all, nodes| all | of_all(nodes))
    }

    /// Guesses the layers of most frames, for a chain that reads these inputs, from the first layer on: alternatives
    /// such as TCP and UDP share one position.
    ///
    /// Optional layers, such as tags, are not among them. Alternatives are layers with a common input; otherwise the
    /// guess follows the path with the most wanted inputs.
    pub(super) fn specialized_layers(&self, requested_inputs: InputSet) -> Vec<Vec<Node>> {
        let reach = self.reachable_inputs(requested_inputs);
        let (mut layers, mut nodes) = (Vec::new(), self.roots.clone());
        loop {
            let gives = |node: Node| self.inputs_set_by(node) & requested_inputs;
            let shares = |node: &Node| {
                let others = nodes.iter().filter(|other| *other != node);
                others.fold(InputSet::EMPTY, |all, other| all | gives(*other)) & gives(*node)
            };
            let Some(most) = nodes.iter().map(|node| shares(node).len()).max() else { return layers };
            let peers: Vec<Node> = match most {
                0 => {
                    nodes.iter().copied().min_by_key(|node| Reverse(reach[node].len())).into_iter().collect()
                }
                most => nodes.iter().copied().filter(|node| shares(node).len() == most).collect(),
            };
            let behind: Vec<Node> = peers.iter().flat_map(|node| self.forward_edges(*node)).collect();
            let leads = |from: &Node, to: Node| self.all_behind(*from).any(|other| other == to);
            let is_left_out =
                |node: &Node| self.all_behind(*node).any(|to| peers.iter().all(|from| leads(from, to)));
            let is_of_all =
                |to: &Node| peers.iter().all(|node| self.forward_edges(*node).any(|other| other == *to));
            nodes = behind.iter().copied().filter(|node| !is_left_out(node) && is_of_all(node)).collect();
            layers.push(peers);
        }
    }

    /// Returns, for each layer, those of `requested_inputs` that it and its successors may set.
    fn reachable_inputs(&self, requested_inputs: InputSet) -> BTreeMap<Node, InputSet> {
        let mut reach = BTreeMap::new();
        for node in self.order.iter().rev() {
            let behind = self.forward_edges(*node).map(|to| reach[&to]);
            let all =
                behind.fold(self.inputs_set_by(*node) & requested_inputs, |all, more: InputSet| all | more);
            reach.insert(*node, all);
        }
        reach
    }

    /// The layers that may follow one, in the graph or not.
    fn all_behind(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        self.protocols[usize::from(node.0.0)].next.iter().map(move |next| target(node, next))
    }

    /// The successors of a layer, except by back edges.
    fn forward_edges(&self, node: Node) -> impl Iterator<Item = Node> {
        self.edges(node).map(|(_, to)| to).filter(move |to| !self.backs.contains(&(node, *to)))
    }

    /// Returns the wanted inputs that a layer always sets.
    fn inputs_set_by(&self, node: Node) -> InputSet {
        let fields = &self.protocols[usize::from(node.0.0)].fields;
        let is_sure = |what: WantedPart| match what {
            WantedPart::Field(field) => {
                let field = &fields[usize::from(field.0)];
                !field.optional && !field.repeated
            }
            WantedPart::Presence | WantedPart::Header => true,
        };
        let wanted = self.wanted.get(&node).into_iter().flatten();
        wanted.filter(|wanted| is_sure(wanted.what)).map(|wanted| wanted.input).collect()
    }

    /// Returns the layers from which a wanted one can be reached, wanted ones included.
    fn layers_that_reach_wanted(&self, level_max: u8) -> BTreeSet<Node> {
        let mut useful: BTreeSet<Node> = self.wanted.keys().copied().collect();
        loop {
            let before = useful.len();
            for (at, protocol) in self.protocols.iter().enumerate() {
                for level in 0..=level_max {
                    let node = (ProtocolId(at as u16), level);
                    if protocol.next.iter().any(|next| useful.contains(&target(node, next))) {
                        useful.insert(node);
                    }
                }
            }
            if useful.len() == before {
                return useful;
            }
        }
    }

    /// Appends a layer to `order` after its successors, depth-first, and records back edges. The caller reverses the
    /// list.
    fn visit(
        &mut self,
        node: Node,
        useful: &BTreeSet<Node>,
        done: &mut BTreeSet<Node>,
        under_way: &mut BTreeSet<Node>,
    ) {
        if done.contains(&node) {
            return;
        }
        under_way.insert(node);
        for next in &self.protocols[usize::from(node.0.0)].next {
            let to = target(node, next);
            if under_way.contains(&to) {
                self.backs.insert((node, to));
            } else if useful.contains(&to) {
                self.visit(to, useful, done, under_way);
            }
        }
        under_way.remove(&node);
        done.insert(node);
        self.order.push(node);
    }
}

/// Returns the layer that an edge leads to. An inner header is one level deeper.
fn target(node: Node, next: &Next) -> Node {
    (next.to, node.1 + u8::from(next.inner))
}
