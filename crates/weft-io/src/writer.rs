//! The thread that writes sink rows. The data path hands it batches and never waits for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_core::Type;
use weft_core::text::Escape;
use weft_core::text::Rfc3339;
use weft_engine::plan::{SinkFormat, SinkTarget};
use weft_engine::report::{Series, SinkValues};
use weft_engine::sinks::TableRow;
use weft_engine::sinks::{Batch, CellValue, Row};

/// Largest number of batches that wait for the writer; further ones are dropped and counted.
const BATCHES_MAX: usize = 64;
/// Rows reach their file after this time at the latest.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// How often the writer checks that a path still names the open file: log rotation renames files.
const ROTATION_EVERY: Duration = Duration::from_secs(1);
/// A file that could not be opened or written is retried after this time; rows until then are lost, and counted.
const RETRY_EVERY: Duration = Duration::from_secs(5);
/// The mode of a file that a sink creates: rows from peers are not for every user of the machine.
const SINK_MODE: u32 = 0o640;
/// Largest number of series of the sinks `TO METRICS` of a node. Values of further ones are dropped and counted.
pub const SERIES_MAX: usize = 10_000;

/// Checks that rows can be appended to a file, without changing anything.
///
/// # Errors
/// The system's reason why they cannot.
pub fn try_to_open(path: &str) -> io::Result<()> {
    // Opening a pipe would wait for its reader.
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return Ok(());
    }
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().append(true).create_new(true).mode(SINK_MODE).open(path)?;
            std::fs::remove_file(path)
        }
        outcome => outcome.map(drop),
    }
}

/// The maximum number of rows that wait for the controller; further ones are dropped and counted.
pub const ROWS_WAITING_MAX: usize = 16_384;
/// The maximum number of rows in one change.
const CHANGE_ROWS_MAX: usize = 4096;
/// The pause between two changes, in which others may change the node.
const REST: Duration = Duration::from_millis(1);

/// Calls `take` with all rows that have arrived, until the senders are gone or `take` returns false.
pub fn receive_rows(
    rows: &Receiver<TableRow>,
    mut take: impl FnMut(&mut dyn Iterator<Item = TableRow>) -> bool,
) {
    while let Ok(first) = rows.recv() {
        if !take(&mut std::iter::once(first).chain(rows.try_iter().take(CHANGE_ROWS_MAX - 1))) {
            return;
        }
        std::thread::sleep(REST);
    }
}

/// A worker's channel to the writer.
#[derive(Debug)]
pub struct RowSender {
    batches: SyncSender<Batch>,
    /// Used batches, which come back for their memory.
    spare: Receiver<Batch>,
}

/// The last value of each series of the sinks `TO METRICS`, at most [`SERIES_MAX`].
#[derive(Clone, Debug, Default)]
pub struct SinkMetrics(Arc<Mutex<Gauges>>);

#[derive(Debug, Default)]
struct Gauges {
    values: BTreeMap<Series, f64>,
    n_lost: u64,
}

/// The writer's thread. It ends when the last [`RowSender`] is dropped.
#[derive(Debug)]
pub struct Writer {
    thread: JoinHandle<()>,
    metrics: SinkMetrics,
    rows_lost: Arc<AtomicU64>,
    errors: SinkErrors,
}

/// By path, why a sink's file cannot be written.
pub type SinkErrors = Arc<Mutex<BTreeMap<String, String>>>;

impl RowSender {
    /// Sends a batch and leaves an empty one in its place. Returns false, and sends nothing, if the writer is behind.
    pub fn send(&self, batch: &mut Batch) -> bool {
        let spare = self.spare.try_recv().unwrap_or_default();
        match self.batches.try_send(core::mem::replace(batch, spare)) {
            Ok(()) => true,
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                *batch = back;
                false
            }
        }
    }
}

impl Writer {
    /// Starts the thread, with a sender for each worker. `tables` receives rows for tables; without it, or when it is
    /// full, they are dropped and counted.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(workers: usize, tables: Option<SyncSender<TableRow>>) -> io::Result<(Self, Vec<RowSender>)> {
        let metrics = SinkMetrics::default();
        let (batches, incoming) = sync_channel(BATCHES_MAX);
        let mut spares = Vec::new();
        let mut senders = Vec::new();
        for _ in 0..workers {
            let (give_back, spare) = sync_channel(2);
            spares.push(give_back);
            senders.push(RowSender { batches: batches.clone(), spare });
        }
        let rows_lost = Arc::new(AtomicU64::new(0));
        let errors = SinkErrors::default();
        let mut files = Files {
            targets: BTreeMap::new(),
            metrics: metrics.clone(),
            rows_lost: Arc::clone(&rows_lost),
            errors: Arc::clone(&errors),
            line: Vec::new(),
            tables,
        };
        let thread = std::thread::Builder::new()
            .name("weft-rows".to_owned())
            .spawn(move || files.run(&incoming, &spares))?;
        Ok((Self { thread, metrics, rows_lost, errors }, senders))
    }

    /// The last values of sinks `TO METRICS`.
    pub fn metrics(&self) -> SinkMetrics {
        self.metrics.clone()
    }

    /// Number of rows that no file or stream accepted.
    pub fn rows_lost(&self) -> u64 {
        self.rows_lost.load(Relaxed)
    }

    /// By path, why a sink's file cannot be written now.
    pub fn errors(&self) -> BTreeMap<String, String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all rows are written. All senders must have been dropped.
    pub fn join(self) {
        // The thread catches its own errors; a panic there has been printed.
        let _ = self.thread.join();
    }
}

impl SinkMetrics {
    /// All series in order, each with its last value.
    pub fn values(&self) -> SinkValues {
        let gauges = self.lock();
        let values = gauges.values.iter().map(|(series, value)| (series.clone(), *value)).collect();
        SinkValues { values, n_lost: gauges.n_lost }
    }

    /// Sets the value of a series.
    pub fn set(&self, series: Series, value: f64) {
        let mut gauges = self.lock();
        let n = gauges.values.len();
        match gauges.values.entry(series) {
            Entry::Occupied(mut entry) => *entry.get_mut() = value,
            Entry::Vacant(entry) if n < SERIES_MAX => {
                entry.insert(value);
            }
            Entry::Vacant(_) => gauges.n_lost += 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gauges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Files {
    /// By path.
    targets: BTreeMap<String, Target>,
    metrics: SinkMetrics,
    rows_lost: Arc<AtomicU64>,
    errors: SinkErrors,
    line: Vec<u8>,
    tables: Option<SyncSender<TableRow>>,
}

enum Target {
    Open {
        file: BufWriter<File>,
        /// Number of rows that are only in the buffer.
        n_buffered: u64,
        /// Identifies the file even if it is renamed.
        id: FileId,
        /// When the file was last seen at its path.
        seen: Instant,
    },
    /// It cannot be written.
    Failed { since: Instant, why: String },
}

/// Device and inode.
type FileId = (u64, u64);

fn id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

impl Target {
    /// Opens a file for appending; completes a last line that a stop has cut. A failure is kept, and retried later.
    fn open(path: &str) -> Self {
        let open = || {
            let file = OpenOptions::new().create(true).append(true).mode(SINK_MODE).open(path)?;
            let id = id_of(&file.metadata()?);
            let mut file = BufWriter::new(file);
            if ends_within_a_line(path) {
                file.write_all(b"\n")?;
            }
            Ok(Self::Open { file, n_buffered: 0, id, seen: Instant::now() })
        };
        open().unwrap_or_else(|error| Self::failed(&error))
    }

    /// Opens the path again if it no longer names the open file. The buffer must be empty.
    fn reopen_if_rotated(&mut self, path: &str, every: Duration) {
        let Self::Open { n_buffered: 0, id, seen, .. } = self else { return };
        if seen.elapsed() < every {
            return;
        }
        *seen = Instant::now();
        if std::fs::metadata(path).is_ok_and(|found| id_of(&found) == *id) {
            return;
        }
        *self = Self::open(path);
    }

    fn failed(error: &io::Error) -> Self {
        Self::Failed { since: Instant::now(), why: error.to_string() }
    }

    fn is_retry_due(&self) -> bool {
        matches!(self, Self::Failed { since, .. } if since.elapsed() >= RETRY_EVERY)
    }

    /// Appends a line; returns the number of lost rows.
    fn append(&mut self, line: &[u8]) -> u64 {
        let Self::Open { file, n_buffered, .. } = self else { return 1 };
        *n_buffered += 1;
        let written = file.write_all(line);
        self.handle_write_result(written)
    }

    /// Writes the buffer; returns the number of lost rows.
    fn flush(&mut self) -> u64 {
        let Self::Open { file, n_buffered, .. } = self else { return 0 };
        let flushed = file.flush();
        if flushed.is_ok() {
            *n_buffered = 0;
        }
        self.handle_write_result(flushed)
    }

    /// Handles the result of a write: after a failure, returns the number of buffered rows, which are lost.
    fn handle_write_result(&mut self, outcome: io::Result<()>) -> u64 {
        let Err(error) = outcome else { return 0 };
        match core::mem::replace(self, Self::failed(&error)) {
            Self::Open { file, n_buffered, .. } => {
                // Rows that count as lost must not be written after all when the buffer is dropped.
                drop(file.into_parts());
                n_buffered
            }
            Self::Failed { .. } => 0,
        }
    }
}

impl Files {
    /// Writes batches until all senders are gone, and flushes the files at regular intervals.
    fn run(&mut self, incoming: &Receiver<Batch>, spares: &[SyncSender<Batch>]) {
        let mut turn = 0;
        let mut flush_at = Instant::now() + FLUSH_EVERY;
        loop {
            match incoming.recv_timeout(flush_at.saturating_duration_since(Instant::now())) {
                Ok(mut batch) => {
                    self.write(&batch);
                    batch.clear();
                    turn = (turn + 1) % spares.len();
                    let _ = spares[turn].try_send(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            if Instant::now() >= flush_at {
                self.flush();
                flush_at = Instant::now() + FLUSH_EVERY;
            }
        }
    }

    /// Writes the rows of a batch to their targets: standard output, files, metrics and tables.
    fn write(&mut self, batch: &Batch) {
        let mut stdout = io::stdout().lock();
        for row in batch.rows() {
            match &row.sink.target {
                SinkTarget::Stdout => {
                    self.line.clear();
                    write_row(&mut self.line, &row);
                    // A closed standard output loses rows; the network goes on.
                    if stdout.write_all(&self.line).is_err() {
                        self.rows_lost.fetch_add(1, Relaxed);
                    }
                }
                SinkTarget::File(path) => {
                    self.line.clear();
                    write_row(&mut self.line, &row);
                    self.append(path);
                }
                SinkTarget::Metrics => self.set_metrics(&row),
                SinkTarget::Table { .. } => {
                    let row = TableRow::of(&row).expect("the row is of a table");
                    if self.tables.as_ref().is_none_or(|tables| tables.try_send(row).is_err()) {
                        self.rows_lost.fetch_add(1, Relaxed);
                    }
                }
            }
        }
    }

    /// Appends the formatted line to a file; opens the file if necessary.
    fn append(&mut self, path: &str) {
        if self.targets.get(path).is_none_or(Target::is_retry_due) {
            self.targets.insert(path.to_owned(), Target::open(path));
        }
        if let Some(target) = self.targets.get_mut(path) {
            self.rows_lost.fetch_add(target.append(&self.line), Relaxed);
        }
    }

    /// Sets a metric for each number of a row; the row's bytes columns are the labels.
    fn set_metrics(&mut self, row: &Row<'_>) {
        let columns = &row.sink.columns;
        let mut labels = Vec::new();
        for (column, value) in columns.iter().zip(row.values()) {
            if let CellValue::Bytes(bytes) = value
                && !bytes.is_empty()
            {
                labels.push((column.name.clone(), column.ty.shown(bytes).into_owned()));
            }
        }
        for (column, value) in columns.iter().zip(row.values()) {
            let number = match value {
                CellValue::Bool(b) => f64::from(u8::from(b)),
                CellValue::Int(n) if column.ty == Type::Interval => n as f64 / 1e9,
                CellValue::Int(n) if column.ty.is_signed() => n as f64,
                CellValue::Int(n) => n as u64 as f64,
                CellValue::Float(x) => x,
                CellValue::Null | CellValue::Bytes(_) => continue,
            };
            let series = Series {
                sink: row.sink.name.clone(),
                column: column.name.clone(),
                chain: row.chain.to_owned(),
                instance: row.sink.owner.clone(),
                labels: labels.clone(),
            };
            self.metrics.set(series, number);
        }
    }

    /// Flushes all files, opens rotated ones again, and updates the list of failed files.
    fn flush(&mut self) {
        let _ = io::stdout().flush();
        for (path, target) in &mut self.targets {
            self.rows_lost.fetch_add(target.flush(), Relaxed);
            target.reopen_if_rotated(path, ROTATION_EVERY);
        }
        let failed = self.targets.iter().filter_map(|(path, target)| match target {
            Target::Failed { why, .. } => Some((path.clone(), why.clone())),
            Target::Open { .. } => None,
        });
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner) = failed.collect();
    }
}

/// Whether a file ends in the middle of a line, because a disk was full or the machine stopped. An unreadable file
/// counts as complete.
fn ends_within_a_line(path: &str) -> bool {
    let last = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        io::Result::Ok(last[0])
    };
    last().is_ok_and(|last| last != b'\n')
}

/// Formats a row as a line of a file, as its sink declares.
pub fn write_row(out: &mut Vec<u8>, row: &Row<'_>) {
    match row.sink.format {
        SinkFormat::Json => write_json(out, row),
        SinkFormat::Text => write_text(out, row),
    }
}

/// Formats a row as a line for people: `2026-03-01T12:00:00.000000Z edge.access.calls user=ann ms=1.25 note="two
/// words"`. Text that is empty, or has blanks or quotes, is quoted as in JSON; NULL is `-`.
fn write_text(out: &mut Vec<u8>, row: &Row<'_>) {
    write_display(out, Rfc3339(row.at.0));
    write!(out, " {}.{}.{}", row.chain, row.sink.owner, row.sink.name)
        .expect("writing to a vector does not fail");
    for (column, value) in row.sink.columns.iter().zip(row.values()) {
        write!(out, " {}=", column.name).expect("writing to a vector does not fail");
        match (value, column.ty) {
            (CellValue::Null, _) => out.push(b'-'),
            (CellValue::Bytes(bytes), ty) => {
                let shown = ty.shown(bytes);
                match is_plain(shown.as_bytes()) {
                    true => out.extend_from_slice(shown.as_bytes()),
                    false => write_json_text(out, shown.as_bytes()),
                }
            }
            (CellValue::Int(n), Type::Timestamp) => write_display(out, Rfc3339(n)),
            (CellValue::Int(n), Type::Status) => {
                out.extend_from_slice(status_name(n).as_bytes());
            }
            (value, ty) => write_json_value(out, ty, value),
        }
    }
    out.push(b'\n');
}

/// Whether a text reads as one unambiguous word.
fn is_plain(bytes: &[u8]) -> bool {
    bytes != b"-" && !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_graphic() && !b"\"=\\".contains(b))
}

fn status_name(code: i64) -> &'static str {
    weft_core::Status::from_code(code as u64).map_or("UNKNOWN", |status| status.name())
}

/// Formats a row as a line of JSON: the time, the chain and the sink, and the columns. A column of the same name
/// replaces ours. Times are RFC 3339, intervals seconds, statuses their names.
fn write_json(out: &mut Vec<u8>, row: &Row<'_>) {
    let is_column = |name: &str| row.sink.columns.iter().any(|c| c.name == name);
    out.push(b'{');
    if !is_column("at") {
        write_name(out, "at");
        write_json_value(out, Type::Timestamp, CellValue::Int(row.at.0));
    }
    if !is_column("chain") {
        write_name(out, "chain");
        write_json_text(out, row.chain.as_bytes());
    }
    if !is_column("sink") {
        write_name(out, "sink");
        write_json_text(out, format!("{}.{}", row.sink.owner, row.sink.name).as_bytes());
    }
    for (column, value) in row.sink.columns.iter().zip(row.values()) {
        write_name(out, &column.name);
        write_json_value(out, column.ty, value);
    }
    out.extend_from_slice(b"}\n");
}

/// Writes the name of a JSON member, with a comma in front if it is not the first.
fn write_name(out: &mut Vec<u8>, name: &str) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    write_json_text(out, name.as_bytes());
    out.push(b':');
}

/// Writes a value as JSON, in the form of its type.
fn write_json_value(out: &mut Vec<u8>, ty: Type, value: CellValue<'_>) {
    match (value, ty) {
        (CellValue::Null, _) => out.extend_from_slice(b"null"),
        (CellValue::Bool(b), _) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        (CellValue::Int(n), Type::Timestamp) => {
            out.push(b'"');
            write_display(out, Rfc3339(n));
            out.push(b'"');
        }
        (CellValue::Int(n), Type::Interval) => write_display(out, n as f64 / 1e9),
        (CellValue::Int(n), Type::Status) => {
            write_json_text(out, status_name(n).as_bytes());
        }
        (CellValue::Int(n), ty) if ty.is_signed() => write_display(out, n),
        (CellValue::Int(n), _) => write_display(out, n as u64),
        // JSON has no infinities; the language has neither them nor NaN.
        (CellValue::Float(x), _) if x.is_finite() => write_display(out, x),
        (CellValue::Float(_), _) => out.extend_from_slice(b"null"),
        (CellValue::Bytes(bytes), ty) => write_json_text(out, ty.shown(bytes).as_bytes()),
    }
}

fn write_display(out: &mut Vec<u8>, value: impl core::fmt::Display) {
    write!(out, "{value}").expect("writing to a vector does not fail");
}

/// Writes text as a JSON string that is safe on a terminal; invalid UTF-8 is replaced.
fn write_json_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                ' '..='~' => out.push(c as u8),
                c => match Escape::of(c) {
                    Some(escape) => write_display(out, escape),
                    None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                },
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A client that makes up label values must not fill the node's memory.
    #[test]
    fn series_limit_counts_losses() {
        let metrics = SinkMetrics::default();
        let series = |n: usize| Series { labels: vec![("user".into(), n.to_string())], ..Series::default() };
        (0..SERIES_MAX + 3).for_each(|n| metrics.set(series(n), 1.0));
        metrics.set(series(0), 2.0);
        let SinkValues { values, n_lost } = metrics.values();
        assert_eq!((values.len(), n_lost), (SERIES_MAX, 3));
        assert_eq!(values[0].1, 2.0);
    }

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    /// A client must not be able to forge a log line by a quote or a line break in a field, nor write to the terminal
    /// on which the log is read.
    #[test]
    fn text_is_escaped() {
        let text = shown(|out| write_json_text(out, b"a\"b\\c\nd\x01\xffe"));
        assert_eq!(text, "\"a\\\"b\\\\c\\nd\\u0001\u{fffd}e\"");
        let text = shown(|out| write_json_text(out, "\u{7f}\u{9b}2J\u{202e}\u{2028}ä".as_bytes()));
        assert_eq!(text, "\"\\u007f\\u009b2J\\u202e\\u2028ä\"");
    }

    /// A field must not look like another column, or like a line of its own.
    #[test]
    fn ambiguous_words_are_quoted() {
        let plain: Vec<_> = [&b"ann"[..], b"/shop.Cart/Add", b"a b", b"a=b", b"", b"-", b"x\n", b"\xc3\xa4"]
            .into_iter()
            .map(is_plain)
            .collect();
        assert_eq!(plain, [true, true, false, false, false, false, false, false]);
    }

    /// A log file on a full disk would lose rows without a trace.
    #[test]
    fn unwritable_rows_are_counted() {
        let mut full = Target::open("/dev/full");
        assert_eq!(full.append(b"one\n"), 0, "it is in the buffer");
        assert_eq!(full.append(b"two\n"), 0);
        assert_eq!(full.flush(), 2);
        assert_eq!(full.append(b"three\n"), 1);
        assert_eq!(Target::open("/nowhere/at/all").append(b"x"), 1);
    }

    /// The row after a torn one would be unreadable, too: readers work line by line.
    #[test]
    fn row_after_torn_line_starts_new_line() {
        let folder = Folder::new("torn");
        let path = folder.path("log");
        std::fs::write(&path, "one\n{\"half").expect("the folder is writable");
        for row in [&b"two\n"[..], b"three\n"] {
            let mut target = Target::open(&path);
            assert_eq!(target.append(row) + target.flush(), 0);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("the file exists"), "one\n{\"half\ntwo\nthree\n");
    }

    /// A folder that the test removes.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weft-writer-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).expect("the test's folder can be made");
            Self(path)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).display().to_string()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn sink_file_is_private() {
        // Every user of the machine could read what clients sent.
        let folder = Folder::new("mode");
        let path = folder.path("log");
        assert_eq!(Target::open(&path).append(b"one\n"), 0);
        let mode = |path| std::fs::metadata(path).expect("the file exists").mode() & 0o777;
        assert_eq!(mode(&path) & !0o640, 0, "{:o}", mode(&path));
        // An existing file keeps its mode.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("the file is writable");
        assert_eq!(Target::open(&path).append(b"two\n"), 0);
        assert_eq!(mode(&path), 0o644);
    }

    /// Rows written to a rotated file would be lost with it.
    #[test]
    fn rotated_file_is_reopened() {
        let folder = Folder::new("rotation");
        let (path, old) = (folder.path("log"), folder.path("log.1"));
        let mut target = Target::open(&path);
        let mut write = |line: &str| {
            assert_eq!(target.append(line.as_bytes()) + target.flush(), 0);
            target.reopen_if_rotated(&path, Duration::ZERO);
        };
        write("one\n");
        std::fs::rename(&path, &old).expect("the folder is writable");
        write("two\n");
        write("three\n");
        std::fs::remove_file(&path).expect("the folder is writable");
        write("gone\n");
        write("four\n");
        let text = |path: &str| std::fs::read_to_string(path).expect("the file exists");
        assert_eq!((text(&old), text(&path)), ("one\ntwo\n".to_owned(), "four\n".to_owned()));
    }

    /// A dry run that left a file, or a byte, would be a change.
    #[test]
    fn trial_open_changes_nothing() {
        let folder = Folder::new("trial");
        let path = folder.path("log");
        assert!(try_to_open(&path).is_ok());
        assert!(!std::path::Path::new(&path).exists());
        std::fs::write(&path, "one\n").expect("the folder is writable");
        assert!(try_to_open(&path).is_ok());
        assert_eq!(std::fs::read_to_string(&path).expect("the file exists"), "one\n");
        for no_file in [folder.path(""), folder.path("nowhere/log")] {
            assert!(try_to_open(&no_file).is_err(), "{no_file}");
        }
    }

    #[test]
    fn values_print_by_their_type() {
        let check = |ty, value| shown(|out| write_json_value(out, ty, value));
        assert_eq!(check(Type::Uint(64), CellValue::Int(-1)), "18446744073709551615");
        assert_eq!(check(Type::Int(64), CellValue::Int(-1)), "-1");
        assert_eq!(check(Type::Status, CellValue::Int(7)), "\"PERMISSION_DENIED\"");
        assert_eq!(check(Type::Interval, CellValue::Int(1_500_000_000)), "1.5");
        assert_eq!(check(Type::F64, CellValue::Float(f64::INFINITY)), "null");
        assert_eq!(check(Type::Bool, CellValue::Bool(true)), "true");
    }
}
