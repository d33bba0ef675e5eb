use super::*;

/// A directory as a server reports it.
fn dir(id: u64) -> Metadata {
    Metadata::default().with_file_id(id).with_attributes(FileAttributes::DIRECTORY)
}

fn found(nodes: &Nodes, parent: &Arc<Node>, name: &str, metadata: Metadata) -> Arc<Node> {
    nodes.found(parent, name, metadata, Instant::now())
}

#[test]
fn a_directory_that_is_said_to_be_below_itself_has_a_number_of_its_own_and_goes() {
    let nodes = Nodes::new("");
    let top = found(&nodes, nodes.root(), "top", dir(7));
    let middle = found(&nodes, &top, "middle", dir(8));
    let below: Vec<_> = [(&top, 7), (&middle, 8), (&middle, 7)]
        .map(|(at, id)| found(&nodes, at, "x", dir(id)))
        .into();
    for node in &below {
        assert!(node.is_made_up() && ![7, 8].contains(&node.id));
    }
    assert_eq!(below[2].path().unwrap(), "top/middle/x");
    assert_eq!(below[2].id, below[1].id, "asked for again it is the same");
    assert_eq!(found(&nodes, &below[0], "x", dir(7)).path().unwrap(), "top/x/x");
    // Only a directory with the number of a directory above it is refused, because a file may have
    // that number.
    assert_eq!(found(&nodes, &top, "file", Metadata::default().with_file_id(7)).id, 7);
    let gone: Vec<_> = below.iter().chain([&top, &middle]).map(Arc::downgrade).collect();
    drop((top, middle, below));
    for node in nodes.all() {
        nodes.forget(node.id, u64::MAX);
    }
    assert_eq!(nodes.all().len(), 1, "the root");
    assert!(gone.iter().all(|node| node.strong_count() == 0));
    assert!(nodes.table.lock().seen_as.is_empty());
}

#[test]
fn directories_that_changed_places_go() {
    let nodes = Nodes::new("");
    let a = found(&nodes, nodes.root(), "a", dir(7));
    let b = found(&nodes, &a, "b", dir(8));
    // Another client moves b to the root and then a into b, so parent and child change places.
    found(&nodes, nodes.root(), "b", dir(8));
    let again = found(&nodes, &b, "a", dir(7));
    assert!(Arc::ptr_eq(&again, &a) && a.path().unwrap() == "b/a");
    let gone = [Arc::downgrade(&a), Arc::downgrade(&b)];
    nodes.forget(7, u64::MAX);
    assert_eq!(a.names.lock().len(), 1, "the name that does not lead back stays");
    drop((a, b, again));
    nodes.forget(8, u64::MAX);
    assert!(gone.iter().all(|node| node.strong_count() == 0));
}
#[test]
fn what_takes_anothers_number_is_forgotten_when_both_are() {
    let nodes = Nodes::new("");
    let file = found(&nodes, nodes.root(), "a", Metadata::default().with_file_id(7));
    found(&nodes, nodes.root(), "a", Metadata::default().with_file_id(7));
    let other = found(&nodes, nodes.root(), "a", dir(7));
    assert!(!Arc::ptr_eq(&file, &other));
    // The kernel has looked up the first node twice, and the second one once.
    assert!(nodes.forget(7, 2).is_none());
    assert!(Arc::ptr_eq(&nodes.find(7).unwrap(), &other));
    assert!(nodes.forget(7, 1).is_some());
}
