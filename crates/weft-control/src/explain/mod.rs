//! Explains programs: the effects of each element, the pairs that may be swapped and why others may not, the planned
//! order with its cost, and the tables that can be sharded. For queues: cost and memory.

mod data;
mod effect_names;
mod filters;
mod picture;
pub mod queues;
mod report;
mod text;

use crate::fault::Fault;
use crate::missing_args::{self, MissingArgs};
use queues::{ExplainedQueue, LinkInfo};
use weft_api::Status;
use weft_core::abi::Counters;
use weft_lang::diagnostic::Diagnostic;
use weft_lang::hir::{Network, Queue};
use weft_lang::source::SourceMap;
use weft_opt::lower;

/// Reports of chains and queues.
pub struct Explained {
    chains: Vec<report::Chain>,
    queues: Vec<ExplainedQueue>,
}

impl Explained {
    /// Explains the selected chains and queues. `status` is that of a running node, whose counters decide the order of
    /// elements.
    ///
    /// # Errors
    /// A chain cannot be lowered.
    pub fn of(
        selection: Selection,
        network: &Network,
        sources: &SourceMap,
        status: Option<&Status>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let explain = |chain: usize| {
            let counted = status.map(|status| counted(status, &network.chains[chain].name));
            report::explain(network, chain, sources, &counted.unwrap_or_default())
        };
        let chains = selection.chains.into_iter().map(explain).collect::<Result<_, _>>()?;
        Ok(Self { chains, queues: selection.queues })
    }

    /// The reports as text; with `full`, with all details.
    pub fn text(&self, full: bool) -> String {
        let chains = self.chains.iter().map(|chain| text::of(chain, full));
        let queues = (!self.queues.is_empty()).then(|| queues::text(&self.queues));
        chains.chain(queues).collect::<Vec<_>>().join("\n")
    }

    /// The reports as JSON.
    pub fn json(&self) -> String {
        format!("{}\n", data::of(&self.chains, queues::data_of(&self.queues)))
    }

    /// The plans of the chains as an SVG picture.
    pub fn svg(&self) -> String {
        picture::svg(&self.chains)
    }

    /// The plans of the chains as a graph for Graphviz.
    pub fn dot(&self) -> String {
        picture::dot(&self.chains)
    }
}

/// The fault of a selection without any picture; lists what has one.
pub fn no_picture_fault(network: &Network, name: Option<&str>) -> Fault {
    let mut links = links_of(network);
    let link = links.find(|link| name.is_none_or(|name| name == *link));
    let what = match (name, link) {
        (Some(name), Some(_)) => format!("`{name}` is a link"),
        (Some(name), None) => format!("`{name}` is a queue"),
        (None, _) => "the program has no chains".to_owned(),
    };
    let fault = Fault::usage(format!("{what}: --svg and --dot draw the plans of chains"));
    let recorded = link.map(|link| {
        format!(
            "what waits in `{link}` of a node that runs is drawn by `weft link record {link}` and \
             `weft link show {link}.rec --svg {link}.svg`"
        )
    });
    let chains: Vec<&str> = network.chains.iter().map(|chain| &*chain.name).collect();
    let chains = (!chains.is_empty()).then(|| format!("the program has the chains {}", chains.join(", ")));
    let help: Vec<String> = recorded.into_iter().chain(chains).collect();
    if help.is_empty() { fault } else { fault.with_help(help.join("; ")) }
}

/// Finds a node's counters of a chain's elements.
fn counted(status: &Status, chain: &str) -> Vec<(String, Counters)> {
    let of_calls = status.chains.iter().filter(|known| known.is_current).map(|c| (&c.name, &c.elements));
    let of_frames = status.packets.iter().flat_map(|packets| &packets.chains).map(|c| (&c.name, &c.elements));
    let current = of_calls.chain(of_frames).filter(|(name, _)| *name == chain);
    let element = |element: &weft_api::Element| {
        let ns = element.ns_per_tuple.unwrap_or(0.0) * element.sampled as f64;
        let counters = Counters {
            seen: element.seen,
            dropped: element.dropped,
            aborted: element.aborted,
            diverted: element.diverted,
            failed: element.failed,
            sampled_ns: ns.round() as u64,
            sampled: element.sampled,
        };
        (element.name.clone(), counters)
    };
    current.flat_map(|(_, elements)| elements.iter().map(element)).collect()
}

/// The text of a chain.
///
/// # Errors
/// The chain cannot be lowered.
pub fn text_of(network: &Network, chain: usize, sources: &SourceMap) -> Result<String, Vec<Diagnostic>> {
    Ok(text::of(&report::explain(network, chain, sources, &[])?, true))
}

/// The chains and queues to explain.
pub struct Selection {
    /// Indexes into [`Network::chains`].
    chains: Vec<usize>,
    queues: Vec<ExplainedQueue>,
}

impl Selection {
    /// The chain, link or queue with this name. Without a name: all chains, and the queues of links, or all queues if
    /// there is neither.
    ///
    /// # Errors
    /// There is no such name, or the cost of the queue depends on missing arguments.
    pub fn of(network: &Network, sources: &SourceMap, name: Option<&str>) -> Result<Self, Fault> {
        let Some(name) = name else {
            let has_none =
                network.chains.is_empty() && network.queues.is_empty() && links_of(network).next().is_none();
            if let Some(queue) = missing_args::queues(sources).first().filter(|_| has_none) {
                return Err(missing_args_fault(queue));
            }
            let links: Vec<ExplainedQueue> =
                explained_links(network).map(|(_, explained)| explained).collect();
            let queues = match network.chains.is_empty() && links.is_empty() {
                true => network.queues.iter().map(explained_queue).collect(),
                false => links,
            };
            return Ok(Self { chains: (0..network.chains.len()).collect(), queues });
        };
        let chains = network.chains.iter().map(|chain| &*chain.name);
        if let Some(index) = chains.clone().position(|known| known == name) {
            return Ok(Self { chains: vec![index], queues: Vec::new() });
        }
        let link = explained_links(network).find(|(known, _)| *known == name).map(|(_, explained)| explained);
        let queue = || network.queues.iter().find(|queue| queue.name == name).map(explained_queue);
        if let Some(explained) = link.or_else(queue) {
            return Ok(Self { chains: Vec::new(), queues: vec![explained] });
        }
        if let Some(queue) = missing_args::queues(sources).iter().find(|queue| queue.name == name) {
            return Err(missing_args_fault(queue));
        }
        let links = links_of(network);
        let names: Vec<&str> =
            chains.chain(links).chain(network.queues.iter().map(|queue| &*queue.name)).collect();
        Err(Fault::Input(match names.is_empty() {
            true => "the program has no chains, links or queues".to_owned(),
            false => {
                format!("there is no chain, link or queue `{name}`; the program has {}", names.join(", "))
            }
        }))
    }

    /// Whether it has any chain.
    pub fn has_chains(&self) -> bool {
        !self.chains.is_empty()
    }
}

/// The fault of a queue whose cost depends on missing arguments.
fn missing_args_fault(queue: &MissingArgs) -> Fault {
    queue.fault(&queue.name, |with| {
        format!("explain a queue with a value for each: `CREATE QUEUE mine AS {with}; END;`")
    })
}

/// The names of the links of a program, on ports and of calls.
fn links_of(network: &Network) -> impl Iterator<Item = &str> {
    let of_calls = network.call_links.iter().map(|link| &*link.name);
    network.links.iter().map(|link| &*link.name).chain(of_calls)
}

/// The names of links, with the report of each.
fn explained_links(network: &Network) -> impl Iterator<Item = (&str, ExplainedQueue)> {
    let explained = |link, queue| ExplainedQueue { link: Some(link), program: lower::queue(queue) };
    let of_ports = network
        .links
        .iter()
        .map(move |link| (&*link.name, explained(LinkInfo::of_port(network, link), &link.queue)));
    let of_calls = network
        .call_links
        .iter()
        .map(move |link| (&*link.name, explained(LinkInfo::of_calls(network, link), &link.queue)));
    of_ports.chain(of_calls)
}

fn explained_queue(queue: &Queue) -> ExplainedQueue {
    ExplainedQueue { link: None, program: lower::queue(queue) }
}
