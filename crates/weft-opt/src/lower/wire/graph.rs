//! Which layers a parser has to look at: those that the chain asks about, and those on the way there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use weft_core::inputs::InputSet;
use weft_core::wire::{FieldId, Next, Protocol, ProtocolId};
use weft_ir::ir::InputId;

/// A layer that a parser may meet: a protocol, and the level on which it stands.
pub(super) type Node = (ProtocolId, u8);

/// Something that the chain wants to know of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedField {
    pub(super) input: InputId,
    pub(super) what: WantedPart,
    /// Of the last such layer, and not of the first.
    pub(super) last: bool,
    /// Both words of its slot, and not a number or a truth alone.
    pub(super) place: bool,
}

/// What is wanted of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedPart {
    /// Whether it is there.
    Presence,
    /// A field.
    Field(FieldId),
    /// Where its header is, and where it ends: a [`weft_ir::program::Place::Layer`].
    Header,
}

/// The layers that are looked at, and how one leads to the next.
#[derive(Debug)]
pub(super) struct Graph<'n> {
    pub(super) protocols: &'n [Protocol],
    /// What may stand at the start of a frame.
    pub(super) roots: Vec<Node>,
    /// What is wanted of each, in the order of the inputs.
    pub(super) wanted: BTreeMap<Node, Vec<WantedField>>,
    /// All that are looked at, in an order in which each stands before those that it leads to, but for `backs`.
    pub(super) order: Vec<Node>,
    /// Edges that lead back: from a layer to one that may stand before it.
    pub(super) backs: BTreeSet<(Node, Node)>,
    /// A layer that is looked at may stand in a first fragment.
    pub(super) has_fragments: bool,
}

impl<'n> Graph<'n> {
    /// The graph for what is wanted, with frames that begin with one of these.
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
        let useful = graph.useful(level_max);
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

    /// The edges from a layer to those that are looked at, in order.
    pub(super) fn edges(&self, node: Node) -> impl Iterator<Item = (&'n Next, Node)> {
        let all = self.protocols[usize::from(node.0.0)].next.iter();
        all.map(move |next| (next, target(node, next))).filter(|(_, to)| self.order.contains(to))
    }

    pub(super) fn is_cyclic(&self) -> bool {
        !self.backs.is_empty()
    }

    /// Those of the inputs in `asked` that frames have with such layers ([`Graph::usual_layers`]). That is a guess, and
    /// good for speed alone.
    pub(super) fn usual(&self, layers: &[Vec<Node>], asked: InputSet) -> InputSet {
        let of_all = |nodes: &Vec<Node>| nodes.iter().fold(asked, |all, node| all & self.gives(*node));
        layers.iter().fold(InputSet::EMPTY, |usual, nodes| usual | of_all(nodes))
    }

    /// The layers that most frames have that a chain is for that asks for these inputs, from the first of a frame on:
    /// those that stand in for each other, as TCP and UDP, are in one place.
    ///
    /// Layers that may be left out, as tags, are not among them, and those stand in for each other that have something
    /// in common. Else the way is taken on which most is wanted.
    pub(super) fn usual_layers(&self, asked: InputSet) -> Vec<Vec<Node>> {
        let reach = self.reach(asked);
        let (mut usual, mut nodes) = (Vec::new(), self.roots.clone());
        loop {
            let gives = |node: Node| self.gives(node) & asked;
            let shares = |node: &Node| {
                let others = nodes.iter().filter(|other| *other != node);
                others.fold(InputSet::EMPTY, |all, other| all | gives(*other)) & gives(*node)
            };
            let Some(most) = nodes.iter().map(|node| shares(node).len()).max() else { return usual };
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
            usual.push(peers);
        }
    }

    /// For each layer, which of the inputs in `asked` may be given by it and by those behind it.
    fn reach(&self, asked: InputSet) -> BTreeMap<Node, InputSet> {
        let mut reach = BTreeMap::new();
        for node in self.order.iter().rev() {
            let behind = self.forward_edges(*node).map(|to| reach[&to]);
            let all = behind.fold(self.gives(*node) & asked, |all, more: InputSet| all | more);
            reach.insert(*node, all);
        }
        reach
    }

    /// The layers that may stand behind one, whether they are looked at or not.
    fn all_behind(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        self.protocols[usize::from(node.0.0)].next.iter().map(move |next| target(node, next))
    }

    /// The layers that a layer leads to, but for those that may stand before it.
    fn forward_edges(&self, node: Node) -> impl Iterator<Item = Node> {
        self.edges(node).map(|(_, to)| to).filter(move |to| !self.backs.contains(&(node, *to)))
    }

    /// The inputs that a layer gives whenever it is there.
    fn gives(&self, node: Node) -> InputSet {
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

    /// Layers from which something that is wanted can be reached, themselves included.
    fn useful(&self, level_max: u8) -> BTreeSet<Node> {
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

    /// Depth first: what a layer leads to comes before it, so the list is the reverse of the order.
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

fn target(node: Node, next: &Next) -> Node {
    (next.to, node.1 + u8::from(next.inner))
}
