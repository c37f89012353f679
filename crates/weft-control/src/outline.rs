//! Compares two programs: lists the new, altered and removed objects by name, for `weft apply --dry-run` and the log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use weft_api::{Change, ChangeKind};
use weft_lang::hir::{CallsOf, Edge, FillTarget, Network};

/// The objects of a network, each with its meaning as text. Two objects are equal if these texts are. Locations and
/// comments are not part of them.
#[derive(Clone, Debug, Default)]
pub struct Outline(BTreeMap<String, String>);

impl Outline {
    /// The outline of a checked program.
    pub fn of(network: &Network) -> Self {
        let mut things = BTreeMap::new();
        for listener in &network.listeners {
            things.insert(format!("listener {}", listener.name), format!("{listener:#?}"));
        }
        for cluster in &network.clusters {
            let endpoints = cluster.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            things.insert(format!("cluster {}", cluster.name), format!("{endpoints} {cluster:#?}"));
        }
        for route in &network.routes {
            let (from, to) = (&network.listeners[route.listener].name, &network.clusters[route.cluster].name);
            let meaning = format!("{from} {to} {} {:#?}", route.method_set, route.when);
            things.insert(format!("route {}", route.name), meaning);
        }
        for element in network.declared_elements() {
            let kind = if element.is_of_filter() { "filter" } else { "element" };
            things.insert(format!("{kind} {}", element.name), format!("{element:#?}"));
        }
        for table in &network.tables {
            things.insert(format!("table {}", table.name), format!("{table:#?}"));
        }
        for link in &network.links {
            let mut plain = link.clone();
            plain.port = 0;
            let port = &network.ports[link.port].name;
            things.insert(format!("link {}", link.name), format!("{port} {plain:#?}"));
        }
        for link in &network.call_links {
            let mut plain = link.clone();
            plain.of = CallsOf::Cluster(0);
            let of = match link.of {
                CallsOf::Listener(at) => format!("listener {}", network.listeners[at].name),
                CallsOf::Cluster(at) => format!("cluster {}", network.clusters[at].name),
            };
            things.insert(format!("link {}", link.name), format!("{of} {plain:#?}"));
        }
        for index in 0..network.chains.len() {
            things.extend(chain(network, index));
        }
        for fill in &network.fills {
            let name = match fill.table {
                FillTarget::Shared(table) => network.tables[table].name.clone(),
                FillTarget::Own { chain, instance, table } => own_table(network, chain, instance, table),
            };
            things.insert(format!("rows of {name}"), format!("{:?}", fill.rows));
        }
        Self(things)
    }

    /// The differences in `new`, in order of name.
    pub fn changes_to(&self, new: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (what, meaning) in &new.0 {
            let kind = match self.0.get(what) {
                None => ChangeKind::New,
                Some(before) if before != meaning => ChangeKind::Changed,
                Some(_) => continue,
            };
            changes.push(Change { what: what.clone(), kind });
        }
        let gone = self.0.keys().filter(|what| !new.0.contains_key(*what));
        changes.extend(gone.map(|what| Change { what: what.clone(), kind: ChangeKind::Gone }));
        changes.sort_by(|a, b| a.what.cmp(&b.what));
        changes
    }
}

/// A chain, and the tables and variables of its instances. It refers to other objects by name, not by index, because
/// their order may change.
fn chain(network: &Network, index: usize) -> Vec<(String, String)> {
    let chain = &network.chains[index];
    let mut plain = chain.clone();
    let (from, to) = network.ends(chain);
    let mut meaning = format!("{from} {to}");
    plain.edge = Edge::Calls { from: 0, to: 0 };
    plain.methods.iter_mut().for_each(|method| (method.input, method.output) = (0, 0));
    let mut things = Vec::new();
    for (at, instance) in plain.instances.iter_mut().enumerate() {
        let element = &network.elements[instance.element];
        write!(meaning, " {}", element.name).expect("a string takes all text");
        instance.element = 0;
        for (table, (declared, limits)) in element.tables.iter().zip(&instance.tables).enumerate() {
            let name = own_table(network, index, at, table);
            things.push((format!("table {name}"), format!("{declared:#?} {limits:?}")));
        }
        for var in &element.vars {
            let name = format!("var {}.{}.{}", chain.name, instance.name, var.name);
            things.push((name, format!("{var:#?}")));
        }
    }
    things.push((format!("chain {}", chain.name), format!("{meaning} {plain:#?}")));
    things
}

fn own_table(network: &Network, chain: usize, instance: usize, table: usize) -> String {
    let chain = &network.chains[chain];
    let instance = &chain.instances[instance];
    format!("{}.{}.{}", chain.name, instance.name, network.elements[instance.element].tables[table].name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::accepted;

    const OLD: &str = "CREATE LISTENER front ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE ELEMENT count ON rpc AS
  TABLE seen (path TEXT(64) PRIMARY KEY, n I64 = 0) MAX 10 ROWS EVICT OLDEST;
  VAR last TIMESTAMP;
  ON OPEN
    SET last = now();
    UPSERT seen KEY ('x') SET n = n + 1;
END;
CREATE CHAIN shop ON front -> cart AS count; END;
";

    fn outline(text: &str) -> Outline {
        Outline::of(&accepted(text).0.network)
    }

    fn check(new: &str, expected: &[(&str, ChangeKind)]) {
        let changes = outline(OLD).changes_to(&outline(new));
        let changes: Vec<_> = changes.iter().map(|c| (c.what.as_str(), c.kind)).collect();
        assert_eq!(changes, expected);
    }

    /// An edit of a link's queue would show no change.
    #[test]
    fn links_are_part_of_outline() {
        let queue = "CREATE QUEUE line AS LIMIT 9 PACKETS ON OVERFLOW DROP TAIL; END;";
        let link = "CREATE LINK tenants ON CLUSTER cart CONCURRENCY 8 QUEUE line;";
        let with = format!("{OLD}{queue}{link}");
        check(&with, &[("link tenants", ChangeKind::New)]);
        let changed = outline(&with).changes_to(&outline(&with.replace("8 QUEUE", "9 QUEUE")));
        assert_eq!((changed.len(), changed[0].kind), (1, ChangeKind::Changed));
        let moved =
            with.replace("CREATE CLUSTER cart", "CREATE CLUSTER before TO '127.0.0.1:2';CREATE CLUSTER cart");
        let moved = outline(&with).changes_to(&outline(&moved));
        assert_eq!(moved.iter().map(|change| change.what.as_str()).collect::<Vec<_>>(), ["cluster before"]);
    }

    /// Users would not trust a dry run that lists changes where only comments and locations differ.
    #[test]
    fn comments_do_not_change_outline() {
        check(&format!("-- A comment.\n\n{}", OLD.replace("ON OPEN", "-- Each call.\n  ON OPEN")), &[]);
    }

    /// A dry run that omits a change would be worse than none.
    #[test]
    fn changes_list_new_altered_removed() {
        let cluster = OLD.replace("'127.0.0.1:1'", "'127.0.0.1:2'");
        check(&cluster, &[("cluster cart", ChangeKind::Changed)]);
        let element = OLD.replace("n + 1", "n + 2");
        check(&element, &[("element count", ChangeKind::Changed)]);
        let renamed = OLD.replace("AS count;", "AS count AS tally;");
        check(
            &renamed,
            &[
                ("chain shop", ChangeKind::Changed),
                ("table shop.count.seen", ChangeKind::Gone),
                ("table shop.tally.seen", ChangeKind::New),
                ("var shop.count.last", ChangeKind::Gone),
                ("var shop.tally.last", ChangeKind::New),
            ],
        );
    }
}
