//! A device that refuses, is late, dies or goes, as the unmodified libraries take it.

use std::time::{Duration, Instant};

use sluice_connectx::hca::{CommandFault, Trouble};
use sluice_connectx::profile::BLUEFIELD_2;
use sluice_libmlx5::dv::{Answers, Object};
use sluice_libmlx5::verbs::Context;

use crate::rig::{device, open};

const ALLOC_FLOW_COUNTER: u16 = 0x939;
const QUERY_FLOW_COUNTER: u16 = 0x93b;
/// Bytes of the answer for one counter.
const ANSWER: usize = 32;
const EIO: i32 = 5;
/// IBV_EVENT_DEVICE_FATAL
const DEVICE_FATAL: u32 = 8;

/// A flow counter, or the error number.
fn counter(context: &Context) -> Result<Object<'_>, i32> {
    let mut input = [0; 16];
    input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER.to_be_bytes());
    let made = Object::create(context, &input, 16).map(|(object, _)| object);
    made.map_err(|error| error.raw_os_error().unwrap_or_default())
}

#[test]
fn a_command_is_refused_so_often_and_leaves_nothing() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    let trouble = Trouble::Refused { status: 0x08, syndrome: 0x1234 };
    plugged.device().with(|hca| hca.inject(CommandFault { opcode: ALLOC_FLOW_COUNTER, after: 0, times: 2, trouble }));
    let before = plugged.device().census();
    assert!(counter(&context).is_err());
    assert!(counter(&context).is_err());
    assert_eq!(plugged.device().census(), before);
    let counter = counter(&context).unwrap();
    let made = plugged.device().census();
    assert_eq!((made["flow counters"], made["DevX objects of command 0x939"]), (1, 1));
    drop(counter);
    assert_eq!(plugged.device().census(), before);
}

#[test]
fn a_late_command_keeps_only_the_one_who_waits_for_it() {
    const LATE: Duration = Duration::from_millis(1_500);
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    let fault = CommandFault { opcode: ALLOC_FLOW_COUNTER, after: 0, times: 1, trouble: Trouble::Late(LATE) };
    plugged.device().with(|hca| hca.inject(fault));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(counter(&open(&plugged)).unwrap()));
        while plugged.device().with(|hca| hca.executed(ALLOC_FLOW_COUNTER)) == 0 {
            assert!(started.elapsed() < LATE, "nobody gets at the device");
        }
        drop(counter(&context).unwrap());
        assert!(started.elapsed() < LATE, "the next one waits as well");
    });
    assert!(started.elapsed() >= LATE, "it was not late");
}

#[test]
fn who_asks_for_an_answer_later_does_not_wait_for_one_that_is_late() {
    const LATE: Duration = Duration::from_millis(500);
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    let mut input = [0; 16];
    input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER.to_be_bytes());
    let (counter, made) = Object::create(&context, &input, 16).unwrap();
    let answers = Answers::open(&context).unwrap();
    let mut query = [0; 32];
    query[..2].copy_from_slice(&QUERY_FLOW_COUNTER.to_be_bytes());
    query[28..].copy_from_slice(&made[8..12]);
    let fault = CommandFault { opcode: QUERY_FLOW_COUNTER, after: 0, times: 1, trouble: Trouble::Late(LATE) };
    plugged.device().with(|hca| hca.inject(fault));
    let started = Instant::now();
    counter.query_later(&answers, &query, ANSWER, 1).unwrap();
    counter.query_later(&answers, &query, ANSWER, 2).unwrap();
    assert_eq!(answers.next(ANSWER).unwrap().0, 2);
    assert!(started.elapsed() < LATE, "both are late");
    assert_eq!(answers.next(ANSWER).unwrap().0, 1);
    assert!(started.elapsed() >= LATE, "it was not late");
}

#[test]
fn of_a_dead_device_commands_fail_and_what_is_there_can_be_given_back() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    let before = plugged.device().census();
    let made = counter(&context).unwrap();
    plugged.device().die().unwrap();
    assert_eq!(context.event().unwrap(), DEVICE_FATAL);
    assert_eq!(counter(&context).err(), Some(EIO));
    drop(made);
    assert_eq!(plugged.device().census(), before);
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn of_a_device_that_was_taken_out_nothing_is_left_and_every_request_fails() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    let made = counter(&context).unwrap();
    plugged.device().vanish().unwrap();
    assert_eq!(context.event().unwrap(), DEVICE_FATAL);
    assert!(context.event().is_err(), "nothing comes any more");
    assert_eq!(counter(&context).err(), Some(EIO));
    assert_eq!(plugged.device().census().len(), 0);
    drop(made);
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
