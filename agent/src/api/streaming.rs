//! Calls that are answered by a stream.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

use super::errors::cut_off;

/// What a client of a stream of answers reads.
pub(super) type Answers<T> = mpsc::Receiver<Result<T, Status>>;
/// Where such answers are written.
pub(super) type Answer<T> = mpsc::Sender<Result<T, Status>>;

/// Has the client hear of it if the task panics that writes the answers: a stream that only ends would pass for a whole one.
pub(super) fn look_after<T: Send + 'static>(task: JoinHandle<()>, answer: Answer<T>) {
    tokio::spawn(async move {
        if let Err(error) = task.await {
            // Nobody reads it if the client is gone.
            let _ = answer.send(Err(cut_off(&error))).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use sluice_api::{Details, rpc};
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_stream_whose_task_panics_ends_with_an_error_and_not_as_if_it_were_whole() {
        let (answer, mut answers) = mpsc::channel(1);
        let writing = answer.clone();
        let task = tokio::spawn(async move {
            writing.send(Ok(1)).await.unwrap();
            panic!("on purpose");
        });
        look_after(task, answer);
        assert_eq!(answers.recv().await.unwrap().unwrap(), 1);
        let status = answers.recv().await.unwrap().unwrap_err();
        let told: rpc::Status = prost::Message::decode(status.details()).unwrap();
        assert_eq!((status.code(), Details::of(&told).reason.as_str()), (Code::Internal, "FAULT"));
        assert!(answers.recv().await.is_none());
    }
}
