//! The end of the server.

use std::io::Write;
use std::thread;
use std::time::Duration;

use sluice_control::ClientError;

use super::{Bench, read_all};
use crate::ServerOptions;

#[test]
fn a_stop_lets_running_commands_end_and_takes_no_more() {
    let mut bench = Bench::new(ServerOptions::default());
    let mut idle = bench.client();
    idle.call_text("version", &[]).unwrap();
    let mut busy = bench.connect();
    busy.write_all(
        b"{\"id\":1,\"method\":\"sleep\",\"params\":[\"1500\"]}{\"id\":2,\"method\":\"version\",\"params\":[]}",
    )
    .unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let mut watcher = bench.client();
    let watching = thread::spawn(move || watcher.call("watch", &[], &mut |text| begun.send(text.to_owned()).unwrap()));
    assert_eq!(begins.recv().unwrap(), "begin\n");
    thread::sleep(Duration::from_millis(500));
    bench.stop();
    assert_eq!(read_all(busy), "{\"id\":1,\"result\":\"slept\\n\",\"error\":null}");
    watching.join().unwrap().unwrap();
    assert!(idle.call_text("version", &[]).is_err());
    assert!(bench.wait() < Duration::from_secs(10));
}

#[test]
fn a_command_that_is_answered_last_of_all_holds_the_stop_up_for_nobody_and_hears_what_came_of_it() {
    const EXIT: &[u8] = b"{\"id\":4,\"method\":\"exit\",\"params\":[]}";
    let answers = [
        (Ok(""), r#"{"id":4,"result":"","error":null}"#),
        (Ok("done"), r#"{"id":4,"result":"done\n","error":null}"#),
        (Err("3 rules are left"), r#"{"id":4,"result":null,"error":"3 rules are left\n"}"#),
    ];
    for (result, answer) in answers {
        // No stop is as late as that.
        let mut bench =
            Bench::new(ServerOptions { stop_deadline: Duration::from_secs(3600), ..ServerOptions::default() });
        let waiting = [bench.connect(), bench.connect()].map(|mut stream| {
            stream.write_all(EXIT).unwrap();
            stream
        });
        bench.wait_for_lines(2);
        assert_eq!(bench.client().call_text("echo", &["a"]).unwrap(), "a\n", "others are still served");
        bench.stop();
        let readers = waiting.map(|stream| thread::spawn(move || read_all(stream)));
        bench.wait_and_answer(result);
        assert_eq!(readers.map(|reader| reader.join().unwrap()), [answer; 2]);
    }
    // One that nobody answers has not been done.
    let mut bench = Bench::new(ServerOptions::default());
    let mut client = bench.client();
    let asked = client.ask("exit", &[]);
    bench.wait_for_lines(1);
    bench.stop();
    bench.wait();
    assert!(matches!(client.answer(asked, &mut |_| ()), Err(ClientError::Transport(_))));
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut bench = Bench::new(ServerOptions { stop_deadline: Duration::from_millis(100), ..ServerOptions::default() });
    let mut stuck = bench.connect();
    stuck.write_all(b"{\"id\":1,\"method\":\"sleep\",\"params\":[\"60000\"]}").unwrap();
    thread::sleep(Duration::from_millis(500));
    bench.stop();
    assert!(bench.wait() < Duration::from_secs(20));
}
