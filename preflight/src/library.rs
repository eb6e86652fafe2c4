//! Libraries, looked for where the dynamic linker looks, without loading them.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;

use crate::check::Check;
use crate::machine::Machine;

/// Looks for a file whose name begins so, in the folders of libraries or below each of them.
pub(crate) fn check(machine: &Machine, name: &str, folder: &str, package: &str) -> Check {
    const NAME: &str = "rdma-core";
    let found = folders(machine).into_iter().find_map(|place| {
        let place = place.join(folder);
        let file = machine.names(&place).into_iter().find(|file| file.starts_with(name))?;
        // The link leads to the file with the whole version.
        let version = machine.target(place.join(&file)).unwrap_or_else(|| file.clone());
        Some((place.join(&file), version))
    });
    match found {
        Some((path, version)) => Check::ok(NAME, format!("{} ({version})", path.display())),
        None => Check::refuses(NAME, format!("no library has {name}"), format!("apt install {package}")),
    }
}

/// `LD_LIBRARY_PATH`, what `/etc/ld.so.conf` names, and the folders that are always looked into (ld.so(8)).
fn folders(machine: &Machine) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).collect();
    let mut files: Vec<String> = vec!["/etc/ld.so.conf".into()];
    let included = machine.names("/etc/ld.so.conf.d");
    files
        .extend(included.iter().filter(|name| name.ends_with(".conf")).map(|name| format!("/etc/ld.so.conf.d/{name}")));
    for text in files.iter().filter_map(|file| machine.text(file)) {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
        folders.extend(lines.filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::check::Verdict;

    #[test]
    fn a_library_is_found_where_the_linker_would_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { root: folder.path().into(), ..Machine::default() };
        let look = || check(&machine, "libmlx5.so.1", "", "ibverbs-providers");
        assert_eq!(look().verdict, Verdict::Refuses);
        assert_eq!(look().cure.as_deref(), Some("apt install ibverbs-providers"));
        let place = folder.path().join("opt/mellanox/lib");
        fs::create_dir_all(&place).unwrap();
        symlink("libmlx5.so.1.25.56.0", place.join("libmlx5.so.1")).unwrap();
        assert_eq!(look().verdict, Verdict::Refuses, "nobody names the folder");
        fs::create_dir_all(folder.path().join("etc/ld.so.conf.d")).unwrap();
        fs::write(folder.path().join("etc/ld.so.conf.d/ofed.conf"), "# of OFED\n/opt/mellanox/lib\n").unwrap();
        assert_eq!(look(), Check::ok("rdma-core", "/opt/mellanox/lib/libmlx5.so.1 (libmlx5.so.1.25.56.0)"));
    }
}
