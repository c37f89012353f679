//! The HTTP client of a running node's admin endpoint.

use crate::cli::AdminArgs;
use crate::fault::Fault;
use crate::token;
use std::time::Duration;
use weft_api::{
    Applied, ApplyRequest, Bundle, EndRecordingRequest, QueryRequest, QueryResult, RecordRequest, Recording,
    Refused, RowsRequest, Status, TableStatus,
};
use weft_core::text::escape;

/// A longer answer counts as no answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest recording that a node sends, in bytes: its calls, and the program.
const RECORDING_BYTES_MAX: u64 = 512 << 20;

/// Help for the case that another program listens at the address.
const ANOTHER: &str =
    "another program listens there: `weft run` says where its admin endpoint is, --admin names it";

/// A node's admin endpoint.
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    token: String,
}

/// The outcome of a change request.
pub(crate) enum Outcome<T> {
    /// The node made the change.
    Done(T),
    /// The node refused the change, and why.
    Refused(Refused),
}

impl Client {
    /// A client of the node that the arguments name.
    pub(crate) fn new(args: &AdminArgs) -> Result<Self, Fault> {
        let token = token::read(args.admin, args.token_file.as_deref())?;
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
        Ok(Self { agent: config.into(), base: format!("http://{}", args.admin), token })
    }

    /// The node's status.
    pub(crate) fn status(&self) -> Result<Status, Fault> {
        self.get("/v1/status")
    }

    /// The program that the node runs.
    pub(crate) fn program(&self) -> Result<Bundle, Fault> {
        self.get("/v1/program")
    }

    /// The node's tables.
    pub(crate) fn tables(&self) -> Result<Vec<TableStatus>, Fault> {
        self.get("/v1/tables")
    }

    /// Makes the node run a program.
    pub(crate) fn apply(&self, request: &ApplyRequest) -> Result<Outcome<Applied>, Fault> {
        self.post("/v1/apply", request, "nothing was applied")
    }

    /// Makes the node execute statements on its tables.
    pub(crate) fn query(&self, request: &QueryRequest) -> Result<Outcome<Vec<QueryResult>>, Fault> {
        self.post("/v1/query", request, "nothing was changed")
    }

    /// Inserts rows into a table of the node.
    pub(crate) fn put_rows(&self, request: &RowsRequest) -> Result<Outcome<QueryResult>, Fault> {
        self.post("/v1/rows", request, "nothing was changed")
    }

    /// Starts a recording of a link.
    pub(crate) fn record(&self, request: &RecordRequest) -> Result<Outcome<()>, Fault> {
        self.post("/v1/recordings", request, "nothing is recorded")
    }

    /// The progress of the node's recordings.
    pub(crate) fn recordings(&self) -> Result<Vec<Recording>, Fault> {
        self.get("/v1/recordings")
    }

    /// The file of a recording; None if the node no longer has it.
    pub(crate) fn take_recording(&self, request: &EndRecordingRequest) -> Result<Option<String>, Fault> {
        let mut response = self.send("/v1/recordings/take", request)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(RECORDING_BYTES_MAX).read_to_string();
        match status {
            200 => text.map(Some).map_err(|error| self.unreachable(&error)),
            404 => Ok(None),
            _ => Err(self.refused(status, &text.unwrap_or_default())),
        }
    }

    /// Posts a request. Returns the node's answer, or its refusal.
    fn post<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        request: &impl serde::Serialize,
        nothing: &str,
    ) -> Result<Outcome<T>, Fault> {
        let mut response = self.send(path, request)?;
        let status = response.status().as_u16();
        match status {
            200 => {
                response.body_mut().read_json().map(Outcome::Done).map_err(|error| self.unreachable(&error))
            }
            422 => response
                .body_mut()
                .read_json()
                .map(Outcome::Refused)
                .map_err(|error| self.unreachable(&error)),
            503 => {
                let text = response.body_mut().read_to_string().unwrap_or_default();
                // The node itself says what is wrong with its machine; a node that stops sends only a line.
                serde_json::from_str(&text)
                    .map(Outcome::Refused)
                    .map_err(|_| Fault::environment(format!("{nothing}: {}", escape(text.trim()))))
            }
            _ => Err(self.refused(status, &response.body_mut().read_to_string().unwrap_or_default())),
        }
    }

    /// Sends a request; returns the answer with any status.
    fn send(
        &self,
        path: &str,
        request: &impl serde::Serialize,
    ) -> Result<ureq::http::Response<ureq::Body>, Fault> {
        let sent = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("Authorization", format!("Bearer {}", self.token))
            .send_json(request);
        sent.map_err(|error| self.unreachable(&error))
    }

    /// Gets a resource of the admin endpoint.
    fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let sent = self
            .agent
            .get(format!("{}{path}", self.base))
            .header("Authorization", format!("Bearer {}", self.token))
            .call();
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(self.refused(status, &response.body_mut().read_to_string().unwrap_or_default()));
        }
        response.body_mut().read_json().map_err(|error| self.unreachable(&error))
    }

    /// The fault for an endpoint that does not answer, or does not speak the admin protocol.
    fn unreachable(&self, error: &ureq::Error) -> Fault {
        match error {
            ureq::Error::Protocol(_) | ureq::Error::Json(_) | ureq::Error::LargeResponseHeader(..) => {
                Fault::environment(format!("what answers at {} is no admin endpoint: {error}", self.base))
                    .with_help(ANOTHER)
            }
            _ => Fault::environment(format!("the admin endpoint {} does not answer: {error}", self.base))
                .with_help("is the node running? `weft run FILE` starts one"),
        }
    }

    /// The fault for a request that the endpoint refused, with a help for the status.
    fn refused(&self, status: u16, text: &str) -> Fault {
        let fault = Fault::environment(format!(
            "the admin endpoint {} refused: {} ({status})",
            self.base,
            escape(text.trim())
        ));
        match status {
            401 => fault.with_help("the token is of another node or another run: see --token-file"),
            404 | 405 => fault.with_help(ANOTHER),
            _ => fault,
        }
    }
}
