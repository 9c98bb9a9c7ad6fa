"""A function that a pipeline's schedule calls, such as the loss, contains a collective."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="collective-within-pipeline-step",
    title="a collective of all stages in a function that the pipeline's schedule calls",
    symptoms=("D.2.1",),
    in_source=False,
    views=("stacks", "collectives"),
    sees="""
        The first step of a pipeline never ends. The last stage waits in a collective of the loss
        function; the other stages wait in sends and receives that the user never wrote.
    """,
    why="""
        The schedule of a pipeline calls the loss function on the last stage only, and each stage's
        forward pass at another time. A collective in such a function waits for the other stages,
        and they wait for the messages that this stage would send or receive next.
    """,
    broken="""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        def loss_fn(output, target):
            loss = torch.nn.functional.mse_loss(output, target)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            return loss

        torch.manual_seed(0)
        stage = PipelineStage(torch.nn.Linear(4, 4), rank, world_size, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss_fn)
        inputs, target, losses = torch.randn(4, 4), torch.randn(4, 4), []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=target, losses=losses)
    """,
    fixed="""
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        torch.manual_seed(0)
        stage = PipelineStage(torch.nn.Linear(4, 4), rank, world_size, torch.device("cpu"))
        loss_fn = torch.nn.functional.mse_loss
        schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss_fn)
        inputs, target, losses = torch.randn(4, 4), torch.randn(4, 4), []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=target, losses=losses)
        mean = torch.stack(losses).mean().detach() if rank == 1 else torch.zeros(())
        dist.broadcast(mean, src=1)
    """,
    proof="assert mean.item() > 0",
    expected=Expected(ranks=(0,), waiting=(1,), lines={1: 6}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call {op} after the step, on every rank: the last stage keeps its losses, and sends "
            "their mean to the other stages with a broadcast",
        ),
        Advice(
            "fix distributed API usage",
            "within the loss function, pass a group whose ranks are all of this stage, such as the "
            "data-parallel group: `mpu.get_data_parallel_group()` in Megatron-core",
        ),
    ),
    cluster="""
        The watchdog of NCCL ends the job after ten minutes; the last stage names a collective on
        the default group, and the other stages name a send or a receive.
    """,
    apart={"message-without-partner": "the program itself calls send and recv"},
    references=(
        Reference(
            "torch.distributed.pipelining: the last stage computes the loss",
            "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
        ),
    ),
)
