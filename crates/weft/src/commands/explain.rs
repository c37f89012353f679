//! `weft explain`: the effects of each element, the pairs that may be swapped and why others may not, the planned order
//! with its cost, and the tables that can be sharded. For queues: cost and memory.

use crate::source;
use weft_control::check::Accepted;
mod data;
mod effect_names;
mod filters;
mod picture;
pub(super) mod queues;
mod report;
mod text;

use self::queues::{ExplainedQueue, LinkInfo};
use crate::cli::{AdminArgs, ExplainArgs};
use crate::client::Client;
use crate::fault::Fault;
use crate::machine::check_files;
use crate::source::require;
use crate::stderr;
use crate::stdout;
use weft_api::Status;
use weft_control::missing_args::{self, MissingArgs};
use weft_core::abi::Counters;
use weft_lang::diagnostic::Diagnostic;
use weft_lang::hir::{Network, Queue};
use weft_lang::source::SourceMap;
use weft_opt::lower;

/// Runs `weft explain` for all chains and queues, or for the named one.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Fault> {
    if let Some(first) = args.rest.first() {
        return Err(extra_words_fault(args, first));
    }
    require(&args.file).map_err(|fault| missing_file_fault(&args.file, fault))?;
    let checked = check_files(&args.file, &mut source::on_disk());
    stderr::diagnostics(&checked.diagnostics, &checked.sources);
    let Some(Accepted { network, .. }) = checked.accepted else {
        return Err(Fault::reported(checked.at_fault));
    };
    let (chains, queues) = select(&network, &checked.sources, args.name.as_deref())?;
    if chains.is_empty() && (args.svg.is_some() || args.dot.is_some()) {
        return Err(no_picture_fault(&network, args.name.as_deref()));
    }
    let status = args.admin.as_ref().map(|admin| {
        let node = AdminArgs { admin: *admin, token_file: args.token_file.clone() };
        Client::new(&node)?.status()
    });
    let status = status.transpose()?;
    let explained = chains.into_iter().map(|chain| {
        let counted = status.as_ref().map(|status| counted(status, &network.chains[chain].name));
        let counted = counted.unwrap_or_default();
        report::explain(&network, chain, &checked.sources, &counted).map_err(|diagnostics| {
            stderr::diagnostics(&diagnostics, &checked.sources);
            Fault::Reported
        })
    });
    let explained: Vec<report::Chain> = explained.collect::<Result<_, _>>()?;
    for (file, picture) in [(&args.svg, picture::svg as fn(&_) -> _), (&args.dot, picture::dot)] {
        if let Some(file) = file {
            let picture: String = picture(&explained[..]);
            std::fs::write(file, picture).map_err(|error| Fault::environment(format!("{file}: {error}")))?;
        }
    }
    let text = match args.json {
        true => format!("{}\n", data::of(&explained, queues::data_of(&queues))),
        false => {
            let chains = explained.iter().map(|chain| text::of(chain, args.full));
            let queues = (!queues.is_empty()).then(|| queues::text(&queues));
            chains.chain(queues).collect::<Vec<_>>().join("\n")
        }
    };
    stdout::print(&text)
}

/// The fault of more words than a program and a name. Points to the right command if the words name a packet.
fn extra_words_fault(args: &ExplainArgs, first: &str) -> Fault {
    match (&*args.file, &args.name) {
        ("packet", Some(recording)) => Fault::usage("`weft explain` explains programs, and not packets")
            .with_help(format!("write `weft link explain {recording} {first}`")),
        _ => Fault::usage(format!("unexpected argument `{first}`"))
            .with_help("write `weft explain FILE` or `weft explain FILE NAME`"),
    }
}

/// The fault of a missing file. Points to the right command if the user asked for a packet, which is no file.
fn missing_file_fault(file: &str, fault: Fault) -> Fault {
    match file == "packet" && !std::path::Path::new(file).exists() {
        true => fault.with_help(
            "a packet of a recorded link is explained by `weft link explain FILE N`, \
             where FILE is what `weft link record` has written",
        ),
        false => fault,
    }
}

/// The fault of a selection without any picture; lists what has one.
fn no_picture_fault(network: &Network, name: Option<&str>) -> Fault {
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
pub(crate) fn text_of(
    network: &Network,
    chain: usize,
    sources: &SourceMap,
) -> Result<String, Vec<Diagnostic>> {
    Ok(text::of(&report::explain(network, chain, sources, &[])?, true))
}

/// The chains and queues to explain: the one with this name. Without a name: all chains, and the queues of links, or
/// all queues if there is neither.
fn select(
    network: &Network,
    sources: &SourceMap,
    name: Option<&str>,
) -> Result<(Vec<usize>, Vec<ExplainedQueue>), Fault> {
    let Some(name) = name else {
        let has_none =
            network.chains.is_empty() && network.queues.is_empty() && links_of(network).next().is_none();
        if let Some(queue) = missing_args::queues(sources).first().filter(|_| has_none) {
            return Err(missing_args_fault(queue));
        }
        let links: Vec<ExplainedQueue> = explained_links(network).map(|(_, explained)| explained).collect();
        let queues = match network.chains.is_empty() && links.is_empty() {
            true => network.queues.iter().map(explained_queue).collect(),
            false => links,
        };
        return Ok(((0..network.chains.len()).collect(), queues));
    };
    let chains = network.chains.iter().map(|chain| &*chain.name);
    if let Some(index) = chains.clone().position(|known| known == name) {
        return Ok((vec![index], Vec::new()));
    }
    let link = explained_links(network).find(|(known, _)| *known == name).map(|(_, explained)| explained);
    let queue = || network.queues.iter().find(|queue| queue.name == name).map(explained_queue);
    if let Some(explained) = link.or_else(queue) {
        return Ok((Vec::new(), vec![explained]));
    }
    if let Some(queue) = missing_args::queues(sources).iter().find(|queue| queue.name == name) {
        return Err(missing_args_fault(queue));
    }
    let links = links_of(network);
    let names: Vec<&str> =
        chains.chain(links).chain(network.queues.iter().map(|queue| &*queue.name)).collect();
    Err(Fault::Input(match names.is_empty() {
        true => "the program has no chains, links or queues".to_owned(),
        false => format!("there is no chain, link or queue `{name}`; the program has {}", names.join(", ")),
    }))
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
