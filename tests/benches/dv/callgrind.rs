//! What callgrind has counted, by whose work it was.
//!
//! A profile has two kinds of lines with costs: what a function took by itself, and what a call took with all that was called from there.
//! Each function is in an object file, and that says whose work it is:
//!
//! - this program: Sluice, but for the functions of the bench itself (`dv::`), and the allocator that `sluiced` has, too. For the peer, the
//!   program and libraries of DPDK stand in its place, with the loop of its bench, which has no names;
//! - libmlx5 and libibverbs: the peer;
//! - the preloaded library: the emulated device, with its thread, and with the functions of libc that it stands for. It is left out;
//! - all others, which are libc and the loader: the work of whoever has called them, by the costs of calls from one of the three. None of
//!   these functions calls back into one of the three but those of [`CALL_BACK`], which are left out.
//!
//! libmlx5 waits for completions by looking for them again and again. Under `connectx run --in-step` they are there when it looks first,
//! so that it looks as often as it has requests, and no instruction depends on how threads have their turns.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Div, Sub};
use std::path::Path;

/// The crate of the bench, whose functions make changes and take completions.
const BENCH: &str = "dv::";
/// Functions of libc under which all of a program runs, or a thread.
const CALL_BACK: [&str; 3] = ["__libc_start_main", "start_thread", "clone"];
/// What asks the kernel, or the device in its place.
const SYSTEM_CALLS: [&str; 5] = ["ioctl", "read", "write", "poll", "syscall"];

/// Instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Of this program, or of DPDK.
    pub(crate) ours: f64,
    /// Of libmlx5 and libibverbs.
    pub(crate) mlx5: f64,
    /// Calls of [`SYSTEM_CALLS`] by either, by their names.
    pub(crate) calls: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Mlx5,
    Device,
    Callers,
    Bench,
}

impl Whose {
    fn of(object: &str) -> Self {
        let file = object.rsplit('/').next().unwrap_or_default();
        match file {
            _ if file.starts_with("libmlx5") || file.starts_with("libibverbs") => Self::Mlx5,
            _ if file.contains("connectx") => Self::Device,
            _ if ["dv-", "dpdk-", "librte_"].iter().any(|start| file.starts_with(start)) => Self::Ours,
            _ => Self::Callers,
        }
    }
}

impl Counted {
    /// Reads a profile (`callgrind-format` of valgrind's manual).
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read(file).expect("callgrind has written a profile");
        let text = String::from_utf8_lossy(&text);
        let (mut objects, mut functions) = (HashMap::new(), HashMap::new());
        let mut counted = Self::default();
        let (mut whose, mut is_bench) = (Whose::Callers, false);
        let mut call = Call::default();
        for line in text.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => whose = Whose::of(name(&mut objects, value)),
                    "fn" => is_bench = name(&mut functions, value).trim_start_matches('<').starts_with(BENCH),
                    "cob" => call.whose = Some(Whose::of(name(&mut objects, value))),
                    "cfn" => call.function = name(&mut functions, value),
                    "calls" => call.times = value.split(' ').next().and_then(|times| times.parse().ok()),
                    _ => {}
                }
                continue;
            }
            let is_cost = line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first));
            let Some(cost) = is_cost.then(|| line.split(' ').nth(1)?.parse::<f64>().ok()).flatten() else { continue };
            let whose = if is_bench && whose == Whose::Ours { Whose::Bench } else { whose };
            counted.add(whose, std::mem::take(&mut call), cost);
        }
        counted
    }

    fn add(&mut self, whose: Whose, call: Call<'_>, cost: f64) {
        let sum = match whose {
            Whose::Ours => &mut self.ours,
            Whose::Mlx5 => &mut self.mlx5,
            Whose::Device | Whose::Callers | Whose::Bench => return,
        };
        let Some(times) = call.times else { return *sum += cost };
        if SYSTEM_CALLS.contains(&call.function) {
            *self.calls.entry(call.function.to_owned()).or_default() += times;
        }
        let calls_back = CALL_BACK.iter().any(|name| call.function.starts_with(name));
        if call.whose == Some(Whose::Callers) && !calls_back {
            *sum += cost;
        }
    }
}

/// A call, of which the next line with a cost tells.
#[derive(Default)]
struct Call<'t> {
    /// Whose the function is, if it is in another file than its caller.
    whose: Option<Whose>,
    function: &'t str,
    times: Option<f64>,
}

/// A name, which stands where it is told first, and is a number in brackets after that.
fn name<'t>(known: &mut HashMap<&'t str, &'t str>, value: &'t str) -> &'t str {
    match value.split_once(") ") {
        Some((number, name)) => {
            known.insert(number, name);
            name
        }
        None => known.get(value.trim_end_matches(')')).copied().unwrap_or_default(),
    }
}

impl Sub for Counted {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        for (name, times) in other.calls {
            *self.calls.entry(name).or_default() -= times;
        }
        Self { ours: self.ours - other.ours, mlx5: self.mlx5 - other.mlx5, calls: self.calls }
    }
}

impl Div<f64> for Counted {
    type Output = Self;

    fn div(self, by: f64) -> Self {
        let calls = self.calls.into_iter().map(|(name, times)| (name, times / by)).collect();
        Self { ours: self.ours / by, mlx5: self.mlx5 / by, calls }
    }
}
