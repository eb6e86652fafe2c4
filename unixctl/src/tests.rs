use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command as Process, Output as ProcessOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sluice_control::{Client, ClientError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use tempfile::TempDir;

/// A server on a socket of its own.
struct Bench {
    scratch: TempDir,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Vec<Deferred>>,
    /// How many lines the commands have written, and how often `exit` was asked for; 1 once `hang` is without its client, and 2 to end it.
    lines: Arc<AtomicUsize>,
}

impl Bench {
    fn new(options: ServerOptions) -> Self {
        let scratch = TempDir::new().unwrap();
        let lines = Arc::<AtomicUsize>::default();
        let listener = UnixListener::bind(scratch.path().join("ctl")).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let registry = Arc::new(registry(Arc::clone(&lines)));
        let server = runtime.block_on(async { Server::new(listener, registry, options) }).unwrap();
        let server = runtime.spawn(server.run(async { stopped.await.unwrap_or_default() }));
        Self { scratch, runtime, stop: Some(stop), server, lines }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("ctl")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn client(&self) -> Client {
        Client::over(self.connect())
    }

    /// Sends bytes and no more, and reads until the server closes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_all(stream)
    }

    /// Waits until the commands have written so many lines, or `exit` was asked for so often.
    fn wait_for_lines(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.lines.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "they are not there");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// How long the server takes to end.
    fn wait(self) -> Duration {
        let begin = Instant::now();
        self.runtime.block_on(self.server).unwrap();
        self.runtime.shutdown_background();
        begin.elapsed()
    }

    /// Waits for the end of the server, and answers then what is still to be answered.
    fn wait_and_answer(self, result: Result<&str, &str>) {
        self.runtime.block_on(async {
            for deferred in self.server.await.unwrap() {
                deferred.answer(result).await;
            }
        });
        self.runtime.shutdown_background();
    }
}

fn read_all(mut stream: UnixStream) -> String {
    let mut reply = Vec::new();
    // A connection that is closed on unread bytes ends with a reset, after the reply.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

fn registry(lines: Arc<AtomicUsize>) -> Registry {
    let mut registry = Registry::new("sluiced (Sluice) 0.1.0");
    let [exits, hangs] = [(); 2].map(|()| Arc::clone(&lines));
    let mut add = |name, usage, min_args, max_args, run: Handler| {
        registry.register(Command { name, usage, min_args, max_args, run });
    };
    add(
        "dpctl/dump-flows",
        "[-m] [type=..]",
        0,
        2,
        Box::new(|request, out| writeln!(out, "dump {:?} é😀", request.args).map_err(|error| error.to_string())),
    );
    add(
        "echo",
        "TEXT",
        1,
        1,
        Box::new(|request, out| out.write_str(&request.args[0]).map_err(|error| error.to_string())),
    );
    add("fail", "", 0, 0, Box::new(|_, _| Err("no such flow".to_owned())));
    add("panic", "", 0, 0, Box::new(|_, _| panic!("on purpose")));
    add(
        "late-failure",
        "",
        0,
        0,
        Box::new(|_, out| {
            out.write_str("half").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
            Err("lost the device".to_owned())
        }),
    );
    add(
        "many",
        "LINES",
        1,
        1,
        Box::new(move |request, out| {
            for line in 0..request.args[0].parse::<usize>().map_err(|error| error.to_string())? {
                writeln!(out, "recirc_id(0),in_port(1),eth(),eth_type(0x0800) {line}")
                    .map_err(|error| error.to_string())?;
                lines.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }),
    );
    add(
        "watch",
        "",
        0,
        0,
        Box::new(|_, out| {
            out.write_str("begin\n").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
            while out.is_wanted() {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        }),
    );
    add(
        "hang",
        "",
        0,
        0,
        Box::new(move |_, out| {
            while out.is_wanted() {
                thread::sleep(Duration::from_millis(1));
            }
            hangs.store(1, Ordering::Relaxed);
            while hangs.load(Ordering::Relaxed) < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }),
    );
    add(
        "sleep",
        "MILLISECONDS",
        1,
        1,
        Box::new(|request, out| {
            thread::sleep(Duration::from_millis(request.args[0].parse().unwrap_or(0)));
            out.write_str("slept").map_err(|error| error.to_string())
        }),
    );
    add(
        "exit",
        "",
        0,
        0,
        Box::new(move |_, out| {
            exits.fetch_add(1, Ordering::Relaxed);
            out.defer();
            Ok(())
        }),
    );
    registry
}

/// Runs the stock ovs-appctl. Where it is missing, the test is skipped, which on a CI machine is a failure.
fn appctl(bench: &Bench, args: &[&str]) -> Option<ProcessOutput> {
    match Process::new("ovs-appctl").arg("-t").arg(bench.path()).arg("-T10").args(args).output() {
        Ok(output) => Some(output),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: ovs-appctl of package openvswitch-switch cannot be run: {error}");
            None
        }
        Err(error) => panic!("ovs-appctl of package openvswitch-switch cannot be run: {error}"),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_stock_ovs_appctl_gets_its_answers() {
    let bench = Bench::new(ServerOptions::default());
    let Some(dump) = appctl(&bench, &["dpctl/dump-flows", "-m", "type=offloaded"]) else { return };
    assert_eq!(text(&dump.stdout), "dump [\"-m\", \"type=offloaded\"] é😀\n");
    assert_eq!((text(&dump.stderr), dump.status.code()), ("", Some(0)));
    let version = appctl(&bench, &["version"]).unwrap();
    assert_eq!(text(&version.stdout), "sluiced (Sluice) 0.1.0\n");
    let empty = appctl(&bench, &["echo", ""]).unwrap();
    assert_eq!((text(&empty.stdout), empty.status.code()), ("", Some(0)));
    let hostile = "quotes \" and \\ and \u{1} and tabs\t";
    let echo = appctl(&bench, &["echo", hostile]).unwrap();
    assert_eq!(text(&echo.stdout), format!("{hostile}\n"));
}

#[test]
fn the_stock_ovs_appctl_shows_failures_as_such() {
    let bench = Bench::new(ServerOptions::default());
    for (args, expected) in [
        (&["fail"][..], "no such flow\n"),
        (&["nope"], "\"nope\" is not a valid command (use \"list-commands\" to see a list of valid commands)\n"),
        (&["echo"], "\"echo\" command requires at least 1 arguments\n"),
        (&["echo", "a", "b"], "\"echo\" command takes at most 1 arguments\n"),
        (&["panic"], "\"panic\" command failed inside the agent (it panicked)\n"),
    ] {
        let Some(output) = appctl(&bench, args) else { return };
        let socket = bench.path();
        let ending = format!("ovs-appctl: {}: server returned an error\n", socket.display());
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(2)));
        assert_eq!(text(&output.stderr), format!("{expected}{ending}"));
    }
}

#[test]
fn the_stock_ovs_appctl_takes_a_long_dump() {
    let bench = Bench::new(ServerOptions::default());
    let Some(output) = appctl(&bench, &["many", "50000"]) else { return };
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 50_000);
    assert!(text(&output.stdout).ends_with(" 49999\n"));
}

#[test]
fn commands_are_listed_as_open_vswitch_lists_them() {
    let bench = Bench::new(ServerOptions::default());
    let list = bench.client().call_text("list-commands", &[]).unwrap();
    assert!(
        list.starts_with("The available commands are:\n  dpctl/dump-flows        [-m] [type=..]\n  echo "),
        "{list}"
    );
    assert!(list.contains("\n  version                 \n"), "{list}");
}

#[test]
fn requests_in_one_write_are_answered_in_order_with_their_ids() {
    let bench = Bench::new(ServerOptions::default());
    let reply = bench.raw(
        b"{\"id\":5,\"method\":\"sleep\",\"params\":[\"50\"]}{\"id\":\"abc\",\"method\":\"fail\",\"params\":[]}\n\
          {\"jsonrpc\":\"2.0\",\"id\":{\"x\":[1]},\"method\":\"echo\",\"params\":[\"\"]}",
    );
    assert_eq!(
        reply,
        "{\"id\":5,\"result\":\"slept\\n\",\"error\":null}{\"id\":\"abc\",\"result\":null,\"error\":\"no such flow\\n\"}\
         {\"id\":{\"x\":[1]},\"result\":\"\",\"error\":null}"
    );
}

#[test]
fn what_is_no_request_is_told_why_and_closed() {
    let bench = Bench::new(ServerOptions { request_limit: 1000, ..ServerOptions::default() });
    let long = format!("{{\"id\":1,\"x\":\"{}\"}}", "x".repeat(2000));
    for (request, id, reason) in [
        ("garbage", "null", "a request begins with \"{\", not with \"g\", at byte 0"),
        ("\n\u{0}", "null", "a request begins with \"{\", not with byte 0x00, at byte 1"),
        ("{\"id\":1,,}", "null", "key must be a string at byte 8"),
        ("{\"id\":1,\"method\":\"fail\",\"params\":", "null", "the request ends in the middle"),
        ("{\"id\":null,\"method\":\"fail\",\"params\":[]}", "null", "the \"id\" of a request cannot be null"),
        ("{\"id\":3,\"method\":\"fail\"}", "3", "the request has no \"params\""),
        (&long, "null", "the request that begins at byte 0 is longer than 1000 bytes"),
    ] {
        let reply = bench.raw(request.as_bytes());
        let value: serde_json::Value = serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{reply}: {error}"));
        assert_eq!(value["id"].to_string(), id, "{request}");
        assert_eq!(value["error"].as_str().unwrap(), format!("{reason}\n"), "{request}");
    }
    assert_eq!(
        bench.raw(b"{\"id\":1,\"method\":\"echo\",\"params\":[1]}{\"id\":2,\"method\":\"echo\",\"params\":[1,2]}"),
        "{\"id\":1,\"result\":null,\"error\":\"\\\"echo\\\" command has non-string argument\\n\"}\
         {\"id\":2,\"result\":null,\"error\":\"\\\"echo\\\" command takes at most 1 arguments\\n\"}"
    );
}

#[test]
fn a_request_with_too_many_brackets_is_refused() {
    let bench = Bench::new(ServerOptions::default());
    let reply = bench.raw(format!("{{\"id\":1,\"x\":{}", "[".repeat(100_000)).as_bytes());
    assert!(reply.contains("nested more than 1000 deep at byte 1011"), "{reply}");
}

#[test]
fn half_a_request_and_silence_is_closed_while_others_are_served() {
    let bench = Bench::new(ServerOptions { silence_limit: Duration::from_millis(100), ..ServerOptions::default() });
    let mut silent = bench.connect();
    silent.write_all(b"{\"id\":1,").unwrap();
    let mut idle = bench.client();
    assert_eq!(bench.client().call_text("echo", &["a"]).unwrap(), "a\n");
    assert_eq!(read_all(silent), "{\"id\":null,\"result\":null,\"error\":\"no more of the request for 100ms\\n\"}");
    // Between requests a client may take its time.
    assert_eq!(idle.call_text("echo", &["b"]).unwrap(), "b\n");
}

#[test]
fn a_client_that_asks_nothing_gives_its_place_back() {
    let idle_limit = Duration::from_millis(100);
    let bench = Bench::new(ServerOptions { idle_limit, connection_limit: 1, reserved: 0, ..ServerOptions::default() });
    let mut silent = bench.connect();
    silent.write_all(b"{\"id\":1,\"method\":\"echo\",\"params\":[\"a\"]}").unwrap();
    assert_eq!(read_all(silent), "{\"id\":1,\"result\":\"a\\n\",\"error\":null}", "its answer, and then the end");
    assert_eq!(bench.client().call_text("echo", &["b"]).unwrap(), "b\n");
}

#[test]
fn one_client_too_many_is_told_so() {
    let bench = Bench::new(ServerOptions { connection_limit: 2, reserved: 0, ..ServerOptions::default() });
    let mut first = bench.client();
    first.call_text("version", &[]).unwrap();
    let mut second = bench.client();
    second.call_text("version", &[]).unwrap();
    let error = bench.client().call_text("version", &[]).unwrap_err();
    assert!(matches!(&error, ClientError::Refused(text) if text.contains("2 control connections")), "{error}");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(5);
    while bench.client().call_text("version", &[]).is_err() {
        assert!(Instant::now() < deadline, "the place of the first client is not given on");
    }
}

#[test]
fn a_client_that_goes_keeps_its_place_as_long_as_its_command_runs() {
    const BUSY: &str = "busy: 1 control connections are open, or their commands still run";
    let bench = Bench::new(ServerOptions { connection_limit: 1, reserved: 0, ..ServerOptions::default() });
    let mut impatient = bench.connect();
    impatient.write_all(b"{\"id\":1,\"method\":\"hang\",\"params\":[]}").unwrap();
    drop(impatient);
    // The command has heard that its client is gone, and goes on.
    bench.wait_for_lines(1);
    let let_in = (0..100).map(|_| read_all(bench.connect())).find(|told| !told.contains(BUSY));
    bench.lines.store(2, Ordering::Relaxed);
    assert_eq!(let_in, None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.client().call_text("version", &[]).is_err() {
        assert!(Instant::now() < deadline, "the place is not given on");
    }
}

#[test]
fn whoever_has_no_right_is_told_so_in_the_reply_to_the_request() {
    let nobody_but = Admission { uid: 4_000_000_000, gid: 4_000_000_000 };
    let bench = Bench::new(ServerOptions { admission: nobody_but, ..ServerOptions::default() });
    if Peer::own().uid == 0 {
        // Root is let in everywhere, so that somebody else has to ask.
        let socket = bench.path();
        open_to_all(&bench);
        let output = Process::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "ovs-appctl", "-T10", "-t"])
            .arg(&socket)
            .arg("version")
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        assert!(
            stderr.starts_with("permission denied: uid 65534 is neither root nor uid 4000000000, nor in group"),
            "{stderr}"
        );
        assert_eq!(output.status.code(), Some(2));
    } else {
        let error = bench.client().call_text("version", &[]).unwrap_err().to_string();
        assert!(error.starts_with("permission denied"), "{error}");
    }
}

#[test]
fn a_member_of_the_group_is_let_in_by_any_of_its_groups() {
    if Peer::own().uid != 0 {
        eprintln!("SKIPPED: only root can be somebody else");
        return;
    }
    let admission = Admission { uid: 4_000_000_000, gid: 4711 };
    let bench = Bench::new(ServerOptions { admission, ..ServerOptions::default() });
    open_to_all(&bench);
    for groups in [["--regid=4711", "--clear-groups"], ["--regid=65534", "--groups=1234,4711"]] {
        let output = Process::new("setpriv")
            .arg("--reuid=65534")
            .args(groups)
            .args(["ovs-appctl", "-T10", "-t"])
            .arg(bench.path())
            .arg("version")
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), "sluiced (Sluice) 0.1.0\n", "{}", text(&output.stderr));
    }
}

fn open_to_all(bench: &Bench) {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    set_permissions(bench.path(), Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn a_client_that_does_not_read_holds_its_command_back_and_nobody_else() {
    let bench = Bench::new(ServerOptions::default());
    let mut slow = bench.connect();
    slow.write_all(b"{\"id\":1,\"method\":\"many\",\"params\":[\"10000000\"]}").unwrap();
    let held_at = settled(&bench.lines);
    assert!(held_at < 50_000, "{held_at} lines were written for a client that does not read");
    assert_eq!(bench.client().call_text("echo", &["a"]).unwrap(), "a\n");
    // Once it goes, the command is stopped.
    drop(slow);
    assert!(settled(&bench.lines) < held_at + 5_000);
}

#[test]
fn a_client_that_reads_nothing_for_too_long_is_given_up() {
    let bench = Bench::new(ServerOptions { stall_limit: Duration::from_millis(200), ..ServerOptions::default() });
    let mut slow = bench.connect();
    slow.write_all(b"{\"id\":1,\"method\":\"many\",\"params\":[\"10000000\"]}").unwrap();
    settled(&bench.lines);
    // What was under way arrives, and then the end instead of the rest.
    let rest = read_all(slow);
    assert!(!rest.ends_with('}') && rest.len() < 4 << 20, "{} bytes", rest.len());
}

/// What a counter comes to rest at.
fn settled(counter: &AtomicUsize) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = usize::MAX;
    while counter.load(Ordering::Relaxed) != last {
        assert!(Instant::now() < deadline, "does not come to rest");
        last = counter.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1));
    }
    last
}

#[test]
fn a_command_that_waits_hears_when_its_client_goes() {
    let mut bench = Bench::new(ServerOptions { stop_deadline: Duration::from_secs(20), ..ServerOptions::default() });
    let mut stream = bench.connect();
    stream.write_all(b"{\"id\":1,\"method\":\"watch\",\"params\":[]}").unwrap();
    let mut begin = [0; 25];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(text(&begin), "{\"id\":1,\"result\":\"begin\\n");
    drop(stream);
    thread::sleep(Duration::from_millis(600));
    bench.stop();
    assert!(bench.wait() < Duration::from_secs(5));
}

#[test]
fn a_failure_in_the_middle_is_no_success() {
    let bench = Bench::new(ServerOptions::default());
    let mut heard = String::new();
    let error = bench.client().call("late-failure", &[], &mut |text| heard.push_str(text)).unwrap_err();
    assert_eq!(heard, "half");
    assert_eq!(error.to_string(), "the agent closed the connection in the middle");
    if let Some(output) = appctl(&bench, &["late-failure"]) {
        assert_eq!(output.status.code(), Some(1));
    }
}

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

#[test]
fn our_client_reads_whatever_a_reply_may_look_like() {
    for (reply, expected) in [
        (
            r#"{"id":0,"result":"a\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\é😀","error":null}"#,
            Ok("aé😀/\u{8}\u{c}\n\r\t\"\\é😀"),
        ),
        (" {\n\"error\" : null , \"result\" : \"x\" , \"id\" : 0 }", Ok("x")),
        (r#"{"id":0,"error":"bad\n"}"#, Err("bad")),
        (r#"{"id":0,"result":null,"error":"bad"}"#, Err("bad")),
        (r#"{"id":null,"error":"who are you\n"}"#, Err("who are you")),
        (
            r#"{"id":1,"result":"x","error":null}"#,
            Err("the reply of the agent is no JSON-RPC: an answer to another request"),
        ),
        (
            r#"{"id":0,"result":null,"error":null}"#,
            Err("the reply of the agent is no JSON-RPC: neither result nor error"),
        ),
        (r#"{"id":0,"result":{"a":1}}"#, Err("the reply of the agent is no JSON-RPC: an unexpected member \"result\"")),
        (r#"{"id":0,"result":"\ud83d"#, Err("the agent closed the connection in the middle")),
        (r#"{"id":0,"result":"\ud83dx"}"#, Err("the reply of the agent is no JSON-RPC: half a surrogate pair")),
        ("", Err("the agent closed the connection in the middle")),
    ] {
        // Byte by byte, so that every character is cut.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sender = thread::spawn(move || {
            theirs.read_exact(&mut [0; 36]).unwrap();
            for byte in reply.as_bytes() {
                theirs.write_all(&[*byte]).unwrap_or_default();
                thread::yield_now();
            }
        });
        let result = Client::over(ours).call_text("many", &[]);
        sender.join().unwrap();
        match (result, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text, expected),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{reply}"),
            (result, _) => panic!("{reply}: {result:?}"),
        }
    }
}

#[test]
fn our_client_streams_a_dump_piece_by_piece() {
    let bench = Bench::new(ServerOptions::default());
    let (mut bytes, mut longest) = (0, 0);
    let mut client = bench.client();
    client
        .call("many", &["200000"], &mut |text| {
            bytes += text.len();
            longest = longest.max(text.len());
        })
        .unwrap();
    assert!(bytes > 9_000_000);
    assert!(longest <= 256 << 10, "{longest}");
    assert_eq!(client.call_text("echo", &["and goes on"]).unwrap(), "and goes on\n");
}

#[test]
fn a_large_request_arrives_whole() {
    let bench = Bench::new(ServerOptions::default());
    let large = "flow\n".repeat(1 << 20);
    assert_eq!(bench.client().call_text("echo", &[&large]).unwrap(), large);
    let small = Bench::new(ServerOptions { request_limit: 1 << 20, ..ServerOptions::default() });
    let error = small.client().call_text("echo", &[&large]).unwrap_err();
    assert!(matches!(&error, ClientError::Refused(text) if text.contains("longer than 1048576 bytes")), "{error}");
}

#[test]
fn requests_that_are_sent_ahead_are_answered_in_order() {
    let bench = Bench::new(ServerOptions::default());
    let mut client = bench.client();
    // The second is larger than a piece in which the server reads, the third than what it reads ahead.
    let texts = ["first\n".to_owned(), "x\"\\\n".repeat(100_000), "flow\n".repeat(1 << 20)];
    let asked: Vec<_> = ["sleep", "echo", "echo"]
        .into_iter()
        .zip(["50", &texts[0], &texts[1]])
        .map(|(method, argument)| client.ask(method, &[argument]))
        .collect();
    let answers: Vec<_> = asked
        .into_iter()
        .map(|asked| {
            let mut answer = String::new();
            client.answer(asked, &mut |text| answer.push_str(text)).unwrap();
            answer
        })
        .collect();
    assert_eq!(answers, ["slept\n", &texts[0], &texts[1]]);
    assert_eq!(client.call_text("echo", &[&texts[2]]).unwrap(), texts[2]);
}

#[test]
fn the_next_request_is_read_while_one_is_answered() {
    let bench = Bench::new(ServerOptions::default());
    let mut stream = bench.connect();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(br#"{"id":1,"method":"watch","params":[]}"#).unwrap();
    // More than a socket holds. The first command ends only when its client goes.
    let text = "x".repeat(1 << 20);
    stream.write_all(format!(r#"{{"id":2,"method":"echo","params":["{text}"]}}"#).as_bytes()).unwrap();
}

#[test]
fn an_agent_that_does_not_answer_is_given_up() {
    let bench = Bench::new(ServerOptions::default());
    let mut client = bench.client();
    client.set_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = client.call_text("sleep", &["400"]).unwrap_err();
    assert_eq!(error.to_string(), "the agent does not answer");
}
