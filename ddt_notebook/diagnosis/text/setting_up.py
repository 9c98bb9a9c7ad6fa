"""Clues of stage B: ranks are started, find each other and form a group."""

from __future__ import annotations

from .clue import Clue

CLUES = (
    Clue(
        "a host cannot be reached by ssh without a password",
        r"""permission denied<20>(publickey|please try again|password)
ssh not successful
ssh was not successful
host key verification failed
ssh:? (connect|exchange|could not)<80>(refused|timed out|fail|resolve|closed)
unable to ssh
ssh check failed""",
        {"B.1": 4.5},
    ),
    Clue(
        "the name of a host cannot be resolved",
        r"""(could not|cannot|can't|unable to|fail\w* to) resolve
name or service not known
temporary failure in name resolution
nodename nor servname
getaddrinfo
unknownhostexception""",
        {"B.1": 4.0},
    ),
    Clue(
        "mpirun could not start the ranks",
        r"""there are not enough slots
not enough slots available
mpirun was unable
orte daemon
orte_init failed
opal_init
mpi_init
pmix server
pmi_init
mpirun(\.real)?: (command )?not found
horovodrun: command not found
unable to (reliably )?(start|launch) .{0,30}daemon
run as root
mpiexec: (error|command not found)
unreachable (from|by) (each|one)
at least one pair of mpi processes
was unable to find the specified executable
all-to-all .{0,20}fail
prterun
bind(-| )?to .{0,40}(not supported|fail)
hydra_\w+
orted: (command )?not found""",
        {"B.1": 4.0},
    ),
    Clue(
        "the launcher reports that a rank ended at once",
        r"""primary job\s+terminated normally
exited on signal
process returned a non-zero exit code
exited with non-zero status
process\(es\) exited
errors? on (multi|mpi)
mpi_abort""",
        {"B.1": 0.9, "C.8": 0.4, "D.1.1": 0.2, "D.1.7": 0.3},
        kind="effect",
    ),
    Clue(
        "the program does not accept the argument that the launcher passes",
        r"""unrecognized arguments: .{0,80}--local[-_]rank""",
        {"B.1": 4.5},
    ),
    Clue(
        "the port is taken already",
        r"""address already in use
errno:? 98
port .{0,20}(already in use|is occupied|already used)
failed to bind""",
        {"B.1": 5.0, "B.2": 1.4},
        "port-in-use",
    ),
    Clue(
        "the network interface is not there, or is the wrong one",
        r"""unable to find (address|interface)
no usable (network )?interface
unable to find a set of common
no common (network )?interface
no interface
network interfaces? .{0,40}(not|no|fail)""",
        {"B.1": 4.2},
        "network-interface",
    ),
    Clue(
        "",
        r"""_socket_ifname
btl_tcp_if_(in|ex)clude
plm_rsh_args
oob_tcp_if
horovod_gloo_iface
nccl_ib_
ifconfig
btl_openib
firewall""",
        {"B.1": 0.7, "B.2": 1.0, "D.2.3": 0.1},
        kind="context",
    ),
    Clue(
        "the backend is unknown, or not part of this build",
        r"""unknown (c10d )?backend
invalid backend
doesn't have \w+ built in
only supported with gpus
is not available to be used as
nccl is not (available|installed)
mpi support (is )?not (built|available)
gloo .{0,20}(not|hasn't) been built
horovod_cpu_operations""",
        {"B.1": 3.8, "A.1": 0.8, "D.1.3": 0.8},
        "backend-not-available",
    ),
    Clue(
        "a variable that names the master or the rank is not set",
        r"""environment variable \w+ expected
expected, but not set
keyerror: '(rank|local_rank|world_size|master_addr|master_port)'
error initializing torch\.distributed using env""",
        {"B.1": 5.0},
        "environment-not-set",
    ),
    Clue(
        "the group was used before it was formed",
        r"""process group has not been initialized
process group is not initialized
has not been (properly )?initialized; use hvd\.init
horovod (has not|hasn't) been initialized
call init_process_group
comm has not been initialized""",
        {"B.1": 4.5},
        "group-not-initialized",
    ),
    Clue(
        "a function of a notebook cannot be found by the processes that were spawned",
        r"can't get attribute<60>on <module '__main__'",
        {"B.1": 6.0},
        "spawn-in-a-cell",
    ),
    Clue(
        "the group was formed twice",
        r"""process group twice
process group already
already been initialized""",
        {"B.1": 4.5},
        "group-initialized-twice",
    ),
    Clue(
        "the number of ranks does not fit the parallel sizes",
        r"""world[ _]size<40>(not|isn't|n't) divisible
not divisible by (the )?(tensor|pipeline|model|context|expert|data)[ _-]*(model[ _-]*)?parallel
(tensor|pipeline|model)[ _-]parallel[ _-]size<40>(must|should|invalid|larger|greater)
is not equal to micro_batch
check batch related parameters
(world_size|nproc_per_node|number of (gpus|processes))<40>(mismatch|not match|greater than)""",
        {"B.1": 4.2, "C.7": 0.6},
    ),
    Clue(
        "the cluster of TensorFlow is not described rightly",
        r"""tf_config
clusterspec
cluster_spec
multiworkermirrored
parameterserverstrategy
parameter server
grpc server
tf\.distribute\.server
tf\.train\.server""",
        {"B.1": 1.8, "B.2": 0.5},
        kind="context",
    ),
    Clue(
        "the launcher's servers did not find each other",
        r"""horovodrun server
launcher was unable
unable to connect to (the )?(driver|task|host)
common interface found
task.to.task
driver_service
task_service
checking ssh
ssh was successful
run/horovodrun
run/run\.py
launch_gloo
js_?run""",
        {"B.1": 2.2, "B.2": 0.6},
        kind="context",
    ),
    Clue(
        "the rendezvous failed",
        r"""rendezvous ?(closed|connection|timeout|graceful|infinite)?error
rendezvous .{0,40}(fail|closed|refused|error)
the connection to the c10d store has failed
init_rpc
tensorpipe
distributed\.rpc
dist_?store_?error
distnetworkerror""",
        {"B.1": 2.4, "B.2": 1.2},
    ),
    Clue(
        "a connection to another host was refused",
        r"""connection refused
econnrefused
no route to host
network is unreachable
failed to connect to
connect\(\) failed
unable to connect
could not connect
connectionrefusederror
call to connect returned""",
        {"B.1": 2.6, "B.2": 1.8},
    ),
    Clue(
        "a rank did not arrive while the group was formed",
        r"""waiting for clients
clients joined
client socket has timed out
failed to connect to any network address
wait timeout after \d+ ?ms
timed out initializing process group
store based barrier
timed out after \d+ seconds waiting
connectfullmesh
rendezvous .{0,40}<timeout>
failed to recv, got 0 bytes
socket timeout""",
        {"B.2": 5.0, "B.1": 1.6},
        "rank-missing-at-setup",
    ),
    Clue(
        "the launcher waited too long for its tasks",
        r"""timed out waiting for tasks to start
waiting for tasks to start
timeout expired
horovodrun<60><timeout>
still waiting for response from worker
timed out waiting for [\w ]{0,20}(tasks|hosts|workers|ranks|nodes|all)
please check connectivity
check (that|if) .{0,30}(firewall|port)s? """,
        {"B.2": 3.5, "B.1": 1.4},
    ),
    Clue(
        "ranks on several hosts do not start together",
        r"""multi-?(node|host|machine|server)
(multiple|two|several|different|other|both|2|3|4|many) (nodes|machines|hosts|servers|vms|computers)
hostfile
across (nodes|machines|hosts)
-h [\w.-]+:\d+,
cluster
second (node|host|machine)
remote hosts?
ssh""",
        {"B.1": 1.0, "B.2": 1.0, "D.1.1": 0.2, "D.2.3": 0.1},
        kind="context",
    ),
    Clue(
        "",
        r"""docker
container
kubernetes
kubeflow
\bk8s
slurm
srun
sbatch
singularity
mpi-operator
lsf
\bpbs""",
        {"B.1": 0.5, "B.2": 0.6},
        kind="context",
    ),
    Clue(
        "",
        r"""init_process_group
hvd\.init
\btorchrun
torch\.distributed\.launch
mp\.spawn
master_addr
master_port
rendezvous
init_method
deepspeed\.init_distributed
colossalai\.launch
initialize_megatron
horovodrun
mpirun
mpiexec
\bmpi4py""",
        {"B.1": 0.7, "B.2": 0.5},
        kind="context",
    ),
    Clue(
        "the ranks do not start with the launcher",
        r"""<cannot> (run|launch|start|use|initiali[sz]e)\b(?! ')
(doesn't|does not|did not|didn't|won't|not) (start|launch|initiali[sz]e|run)\b
launch\w* .{0,40}(fail|error)
(mpirun|horovodrun|mpiexec|torchrun) <30>(error|fail)""",
        {"B.1": 1.5, "B.2": 0.3},
        kind="complaint",
    ),
    Clue(
        "the run hangs when the ranks start or form their group",
        r"""<hang><70><setup>
<setup><70><hang>
does(n't| not) (start|begin)\b
(starts?|begins?|startup) (but|and) (hang|stuck|stop|wait)
before (the )?(actual )?training (start|begin)""",
        {"B.2": 2.4, "B.1": 0.4},
        kind="complaint",
    ),
    Clue(
        "the run says nothing more",
        r"""without any (error|output|response)
\b(no|any|without) (further |more )?(output|response|log|reaction)\b
(nothing|not anything) (is |gets )?(printed|shown|happens|logged)""",
        {"B.2": 1.4, "D.2.1": 0.9, "B.1": 0.2},
        kind="complaint",
    ),
    Clue(
        "the group has no backend for this kind of tensor",
        r"""no backend type associated with device""",
        {"B.3": 4.0, "D.1.3": 3.0},
        "device-without-backend",
    ),
    Clue(
        "the ranks do not communicate over the protocol that was wanted",
        r"""<not using><30><protocol>
(falls?|fell|falling) back to<20>(tcp|socket|gloo|mpi)
(rdma|infiniband|gpudirect|gdr|\broce\b)<40>(not (used|working|enabled|found)|disabled|fail)
protocol""",
        {"B.3": 3.0, "D.2.3": 0.8, "B.1": 0.3},
        kind="complaint",
    ),
)
