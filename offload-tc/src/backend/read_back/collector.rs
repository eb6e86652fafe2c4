//! Parses rules on other threads while the kernel goes on listing; parsing takes as long as the listing, or longer.

use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::rule::ShownRule;
use crate::backend::ports::Ports;
use crate::wire::filter::{FilterId, FilterView};

/// Bytes of rules that are handed to another thread at once.
const CHUNK: usize = 1 << 16;
/// More threads have nothing to do, because the kernel lists on one processor.
const MOST_THREADS: usize = 4;
/// Chunks that wait for each thread.
const WAITING: usize = 4;

/// The rules of each chunk, with the chunk's number.
type Numbered = Vec<(usize, Vec<ShownRule>)>;

/// Collects rules while they are listed.
pub(crate) struct Collector<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    ports: &'env Ports,
    chunk: Chunk,
    /// Started for the first full chunk.
    threads: Option<Threads<'scope>>,
    done: Numbered,
}

struct Threads<'scope> {
    chunks: Sender<Chunk>,
    running: Vec<ScopedJoinHandle<'scope, Numbered>>,
}

/// Rules as the kernel lists them.
#[derive(Default)]
struct Chunk {
    number: usize,
    bytes: Vec<u8>,
    /// The name of each, and the end of its options.
    rules: Vec<(FilterId, usize)>,
}

impl<'scope, 'env> Collector<'scope, 'env> {
    pub(crate) fn new(scope: &'scope Scope<'scope, 'env>, ports: &'env Ports) -> Self {
        Self { scope, ports, chunk: Chunk::default(), threads: None, done: Vec::new() }
    }

    /// Adds a rule. Of two with the same name the later one counts.
    pub(crate) fn take(&mut self, view: &FilterView<'_>) {
        self.chunk.bytes.extend_from_slice(view.bytes_of_options());
        self.chunk.rules.push((view.id, self.chunk.bytes.len()));
        if self.chunk.bytes.len() >= CHUNK {
            let number = self.chunk.number + 1;
            let chunk = std::mem::replace(&mut self.chunk, Chunk { number, ..Chunk::default() });
            self.hand_over(chunk);
        }
    }

    /// All rules, in order of their names.
    pub(crate) fn finish(mut self) -> Vec<ShownRule> {
        let last = std::mem::take(&mut self.chunk);
        self.done.push((last.number, last.parse(self.ports)));
        if let Some(Threads { chunks, running }) = self.threads {
            drop(chunks);
            for thread in running {
                self.done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        }
        self.done.sort_unstable_by_key(|(number, _)| *number);
        let mut all: Vec<_> = self.done.into_iter().flat_map(|(_, rules)| rules).collect();
        // Later ones first, because the first of a name stays.
        all.reverse();
        all.sort_by_key(ShownRule::id);
        all.dedup_by_key(|rule| rule.id());
        all
    }

    fn hand_over(&mut self, chunk: Chunk) {
        let threads = self.threads.get_or_insert_with(|| Threads::start(self.scope, self.ports));
        let left = if threads.running.is_empty() {
            Some(chunk)
        } else {
            threads.chunks.send(chunk).err().map(|error| error.into_inner())
        };
        // There is no thread for it.
        if let Some(chunk) = left {
            self.done.push((chunk.number, chunk.parse(self.ports)));
        }
    }
}

impl<'scope> Threads<'scope> {
    /// Starts as many threads as are useful and possible.
    fn start<'env>(scope: &'scope Scope<'scope, 'env>, ports: &'env Ports) -> Self {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (chunks, inbox) = bounded::<Chunk>(wanted * WAITING);
        let start = |_| {
            let inbox: Receiver<Chunk> = inbox.clone();
            let work = move || inbox.iter().map(|chunk| (chunk.number, chunk.parse(ports))).collect();
            Builder::new().name("tc-listing".into()).spawn_scoped(scope, work).ok()
        };
        Self { chunks, running: (0..wanted).filter_map(start).collect() }
    }
}

impl Chunk {
    fn parse(&self, ports: &Ports) -> Vec<ShownRule> {
        let mut start = 0;
        let apart = |(id, end): &(FilterId, usize)| {
            let options = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            ShownRule::parse(ports, *id, options)
        };
        self.rules.iter().map(apart).collect()
    }
}
