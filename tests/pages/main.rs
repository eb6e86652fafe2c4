//! The daemon's allocator under a little load. It ends the process at the first allocation if it was built for smaller pages.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let work = |seed: usize| {
        let blocks: Vec<Vec<u8>> = (0..2_000).map(|number| vec![1; (seed + number * 37) % 70_000]).collect();
        blocks.iter().map(Vec::len).sum::<usize>()
    };
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    let total: usize = threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum();
    println!("allocated {total} bytes");
}
