//! Parses the endpoints of traffic: listeners, clusters, routes, ports.

use crate::ast::{
    Assign, Balance, BalanceClause, Cluster, Expr, Group, GroupChoice, Ident, Item, Listener, MethodClause,
    Port, Route, StrLit,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;

use super::Create;
use super::cursor::{Parsed, Parser};

pub(super) const LISTENER_FORM: &str = "CREATE LISTENER frontend ON tcp '127.0.0.1:50051';";
pub(super) const CLUSTER_FORM: &str =
    "CREATE CLUSTER cart TO '127.0.0.1:6001', '127.0.0.1:6002' USING ROUND ROBIN;";
pub(super) const ROUTE_FORM: &str = "CREATE ROUTE r ON frontend METHOD 'shop.Cart/*' TO CLUSTER cart;";
pub(super) const PORT_FORM: &str = "CREATE PORT lan ON packet 'eth0';";
pub(super) const GROUP_FORM: &str = "CREATE GROUP uplinks ON PORT wan0, wan1 SELECT BY flow();";

impl Parser<'_> {
    /// Parses `CREATE LISTENER`.
    pub(super) fn listener(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the listener")?;
        self.clause("ON", "a listener needs an address to bind")?;
        let protocol = self.ident("a protocol, such as `tcp` or `unix`")?;
        let address = self.string("the address to listen on, in quotes")?;
        let options = self.optional_with()?;
        self.semicolon()?;
        let span = self.span_from(create.start);
        Ok(Item::Listener(Listener { or_replace: create.or_replace, name, protocol, address, options, span }))
    }

    /// Parses `CREATE PORT`.
    pub(super) fn port(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the port")?;
        self.clause("ON", "a port needs a device kind")?;
        let kind = self.ident("a port kind, such as `packet` or `pcap`")?;
        let device =
            if self.at(TokenKind::Str) { Some(self.string("a device or a file, in quotes")?) } else { None };
        let options = self.optional_with()?;
        self.semicolon()?;
        let span = self.span_from(create.start);
        Ok(Item::Port(Port { or_replace: create.or_replace, name, kind, device, options, span }))
    }

    /// Parses `CREATE GROUP`.
    pub(super) fn group(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the group")?;
        self.clause("ON", "a group needs its ports")?;
        self.keyword("PORT")?;
        let members = self.comma_list(Self::group_member)?;
        self.layout.weak(self.index());
        let choice = if let Some(span) = self.eat_keyword("ALL") {
            GroupChoice::All(span)
        } else if let Some(span) = self.eat_keyword("FAILOVER") {
            GroupChoice::Failover(span)
        } else if self.eat_keyword("SELECT").is_some() {
            self.keyword("BY")?;
            GroupChoice::Select(self.expr()?)
        } else {
            return Err(self.expected(""));
        };
        self.semicolon()?;
        let (or_replace, span) = (create.or_replace, self.span_from(create.start));
        Ok(Item::Group(Group { or_replace, name, members, choice, span }))
    }

    /// Parses a port of a group, and its weight.
    fn group_member(&mut self) -> Parsed<(Ident, Option<Expr>)> {
        let port = self.ident("a port")?;
        let weight = self.after("WEIGHT", Self::expr)?;
        Ok((port, weight))
    }

    /// Parses `CREATE CLUSTER`.
    pub(super) fn cluster(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the cluster")?;
        self.clause("TO", "a cluster needs endpoints")?;
        let endpoints = self.comma_list(Self::endpoint)?;
        let balance = self.optional_balance()?;
        let options = self.optional_with()?;
        self.semicolon()?;
        let span = self.span_from(create.start);
        Ok(Item::Cluster(Cluster { or_replace: create.or_replace, name, endpoints, balance, options, span }))
    }

    /// Parses an endpoint of a cluster, and its weight.
    fn endpoint(&mut self) -> Parsed<(StrLit, Option<Expr>)> {
        let endpoint = self.string("an endpoint, in quotes")?;
        let weight = self.after("WEIGHT", Self::expr)?;
        Ok((endpoint, weight))
    }

    /// Parses `USING` and a balancing policy, if present.
    fn optional_balance(&mut self) -> Parsed<Option<BalanceClause>> {
        self.layout.weak(self.index());
        let Some(start) = self.eat_keyword("USING") else { return Ok(None) };
        let balance = if self.eat_keyword("ROUND").is_some() {
            self.keyword("ROBIN")?;
            Balance::RoundRobin
        } else if self.eat_keyword("LEAST").is_some() {
            self.keyword("REQUEST")?;
            Balance::LeastRequest
        } else if self.eat_keyword("RANDOM").is_some() {
            Balance::Random
        } else {
            return Err(self.expected(""));
        };
        Ok(Some(BalanceClause { balance, span: self.span_from(start) }))
    }

    /// `WITH (option = value, ...)`; empty if absent.
    pub(super) fn optional_with(&mut self) -> Parsed<Vec<Assign>> {
        self.layout.weak(self.index());
        if self.eat_keyword("WITH").is_none() {
            return Ok(Vec::new());
        }
        self.assigns_in_parens("an option")
    }

    pub(super) fn assigns_in_parens(&mut self, what: &str) -> Parsed<Vec<Assign>> {
        self.paren_list(|p| p.assign(what))
    }

    /// `name = e`
    pub(super) fn assign(&mut self, what: &str) -> Parsed<Assign> {
        let name = self.ident(what)?;
        self.equals()?;
        let value = self.expr()?;
        let span = self.span_from(name.span);
        Ok(Assign { name, value, span })
    }

    /// The `=` of an assignment; `:=` is reported and accepted.
    pub(super) fn equals(&mut self) -> Parsed<()> {
        if self.at(TokenKind::Bind) {
            let span = self.token().span;
            let diagnostic = Diagnostic::error(code::UNEXPECTED, "expected `=`, found `:=`")
                .at(span, "")
                .with_help("`:=` binds a column to a field where an element is used; use `=` to set a value")
                .with_fix(span, "=");
            self.fail(diagnostic);
            self.bump();
            return Ok(());
        }
        self.expect(TokenKind::Eq, "`=`").map(|_| ())
    }

    /// Parses `CREATE ROUTE`.
    pub(super) fn route(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the route")?;
        self.clause("ON", "a route needs a listener")?;
        let listener = self.ident("a listener")?;
        let method = self.optional_method()?;
        self.layout.weak(self.index());
        let when = self.after("WHEN", Self::expr)?;
        self.layout.weak(self.index());
        self.clause("TO", "a route needs a destination")?;
        self.keyword("CLUSTER")?;
        let cluster = self.ident("a cluster")?;
        self.semicolon()?;
        let span = self.span_from(create.start);
        Ok(Item::Route(Route { or_replace: create.or_replace, name, listener, method, when, cluster, span }))
    }

    /// `METHOD [NOT] 'pattern', ...`
    pub(super) fn optional_method(&mut self) -> Parsed<Option<MethodClause>> {
        self.layout.weak(self.index());
        let Some(start) = self.eat_keyword("METHOD") else { return Ok(None) };
        let negated = self.eat_keyword("NOT").is_some();
        let patterns = self.comma_list(|p| p.string("a method pattern such as `'shop.Cart/*'`"))?;
        Ok(Some(MethodClause { negated, patterns, span: self.span_from(start) }))
    }
}
