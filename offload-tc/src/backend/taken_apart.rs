//! Rules of ours, taken apart by other threads while the kernel lists on: that takes as long as the listing, or longer.

use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_flow::action::ActionList;
use sluice_flow::flow::Flow;
use sluice_flow::key::Match;

use super::core::Core;
use super::listing::flow_of;
use crate::label::{Label, Spelling};
use crate::translate;
use crate::wire::filter::{Filter, FilterId, FilterView};
use crate::wire::flower::Flower;
use crate::wire::rule_view::RuleView;

/// Octets of rules that are handed to another thread at once.
const CHUNK: usize = 1 << 16;
/// More threads than this have nothing to do: the kernel lists by one.
const MOST_THREADS: usize = 4;
/// Chunks that wait for each thread.
const WAITING: usize = 4;

/// A rule of ours.
pub(super) struct Taken {
    pub(super) filter: Filter,
    /// What it says; `None` if it cannot be read back.
    pub(super) said: Option<Said>,
}

/// What a rule says.
pub(super) struct Said {
    pub(super) flow: Flow,
    /// Whether the rule says the UFID.
    pub(super) is_named: bool,
    /// What a guard of the flow matches and does, if it needs one.
    pub(super) guard: Option<Box<(Match, ActionList)>>,
}

impl Taken {
    pub(super) fn new(core: &Core, filter: Filter) -> Self {
        Self { said: Said::read(core, &filter), filter }
    }

    pub(super) const fn id(&self) -> FilterId {
        self.filter.id
    }

    pub(super) fn is_guard(&self) -> bool {
        Label::of(&self.filter.flower).is_some_and(|label| label.spelling.has(Spelling::GUARD))
    }

    /// Takes the options of a rule apart.
    pub(super) fn apart(core: &Core, id: FilterId, options: &[u8]) -> Self {
        let view = FilterView::of_flower(id, options);
        // What cannot be taken apart was not made like this: a name without contents is all that is known.
        let filter = view.parse().unwrap_or_else(|_| Filter { id, flower: bare(&view) });
        Self::new(core, filter)
    }
}

impl Said {
    fn read(core: &Core, filter: &Filter) -> Option<Self> {
        let (label, matching, actions) = core.read(filter)?;
        // One of which nothing can be told cannot be read back either.
        let guard = translate::guard(&matching, &actions).ok().flatten().map(Box::new);
        Some(Self { flow: flow_of(&label, &matching, actions), is_named: label.ufid.is_some(), guard })
    }
}

/// The rules of each chunk, with its number.
type Numbered = Vec<(usize, Vec<Taken>)>;

/// Collects rules while they are listed.
pub(super) struct Collector<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    core: &'env Core,
    chunk: Chunk,
    /// There are some once there is a whole chunk.
    threads: Option<Threads<'scope>>,
    done: Numbered,
}

struct Threads<'scope> {
    chunks: Sender<Chunk>,
    running: Vec<ScopedJoinHandle<'scope, Numbered>>,
}

/// Rules as the kernel shows them.
#[derive(Default)]
struct Chunk {
    number: usize,
    octets: Vec<u8>,
    /// The name of each, and where its options end.
    rules: Vec<(FilterId, usize)>,
}

impl<'scope, 'env> Collector<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, core: &'env Core) -> Self {
        Self { scope, core, chunk: Chunk::default(), threads: None, done: Vec::new() }
    }

    /// Takes a rule in. Of two of the same name the later counts.
    pub(super) fn take(&mut self, view: &FilterView<'_>) {
        self.chunk.octets.extend_from_slice(view.octets_of_options());
        self.chunk.rules.push((view.id, self.chunk.octets.len()));
        if self.chunk.octets.len() >= CHUNK {
            let number = self.chunk.number + 1;
            let chunk = std::mem::replace(&mut self.chunk, Chunk { number, ..Chunk::default() });
            self.hand_over(chunk);
        }
    }

    /// All of them, by their names.
    pub(super) fn finish(mut self) -> Vec<Taken> {
        let last = std::mem::take(&mut self.chunk);
        self.done.push((last.number, last.take_apart(self.core)));
        if let Some(Threads { chunks, running }) = self.threads {
            drop(chunks);
            for thread in running {
                self.done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        }
        self.done.sort_unstable_by_key(|(number, _)| *number);
        let mut all: Vec<_> = self.done.into_iter().flat_map(|(_, rules)| rules).collect();
        // Later ones first, for the first of a name stays.
        all.reverse();
        all.sort_by_key(Taken::id);
        all.dedup_by_key(|rule| rule.id());
        all
    }

    fn hand_over(&mut self, chunk: Chunk) {
        let threads = self.threads.get_or_insert_with(|| Threads::start(self.scope, self.core));
        let left = if threads.running.is_empty() {
            Some(chunk)
        } else {
            threads.chunks.send(chunk).err().map(|error| error.into_inner())
        };
        // Nobody takes it.
        if let Some(chunk) = left {
            self.done.push((chunk.number, chunk.take_apart(self.core)));
        }
    }
}

impl<'scope> Threads<'scope> {
    /// As many as may be of use and as there can be.
    fn start<'env>(scope: &'scope Scope<'scope, 'env>, core: &'env Core) -> Self {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let (chunks, inbox) = bounded::<Chunk>(wanted * WAITING);
        let start = |_| {
            let inbox: Receiver<Chunk> = inbox.clone();
            let work = move || inbox.iter().map(|chunk| (chunk.number, chunk.take_apart(core))).collect();
            Builder::new().name("tc-listing".into()).spawn_scoped(scope, work).ok()
        };
        Self { chunks, running: (0..wanted).filter_map(start).collect() }
    }
}

impl Chunk {
    fn take_apart(&self, core: &Core) -> Vec<Taken> {
        let mut start = 0;
        let apart = |(id, end): &(FilterId, usize)| {
            let options = self.octets.get(start..*end).unwrap_or_default();
            start = *end;
            Taken::apart(core, *id, options)
        };
        self.rules.iter().map(apart).collect()
    }
}

/// Of a rule that cannot be taken apart, what its notes and flags say.
fn bare(view: &FilterView<'_>) -> Flower {
    use crate::wire::action::{Action, Control, Cookie, Operation};
    let Ok(rule) = RuleView::new(view) else { return Flower::default() };
    let noted =
        |note: &[u8]| Action { cookie: Cookie::new(note), ..Action::new(Operation::Generic, Control::Other(i32::MIN)) };
    Flower { actions: rule.cookies.map(noted).into(), flags: rule.flags, ..Flower::default() }
}
