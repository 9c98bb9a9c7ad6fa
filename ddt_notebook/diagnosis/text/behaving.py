"""Clues of stage D: the program runs but does not do what was intended."""

from __future__ import annotations

from .clue import Clue

CLUES = (
    Clue(
        "a rank did not reach a collective in which the others wait",
        r"""submitted to be reduced, gathered or broadcasted by subset
waiting for remainder of ranks
missing ranks
stalled ops
stall(ed|s)? ranks?
stall_?check
stall inspector
ready ranks""",
        {"D.2.1": 3.0, "B.1": 0.9, "B.2": 0.5, "D.1.1": 0.3},
    ),
    Clue(
        "a collective was not finished in time",
        r"""watchdog caught collective operation timeout
collective operation timeout
timed out waiting \d+ ?ms for (recv|send)
timed out waiting \d+ ?ms
failed to pass monitoredbarrier
ran for \d+ milliseconds before timing out
nccl<60><timeout>
heartbeat monitor timed out
some nccl operations have failed or timed out
watchdog
application timeout caused pair closure""",
        {"D.2.1": 3.2, "D.1.1": 2.4, "D.2.4": 2.2, "C.2": 1.0, "B.1": 0.7, "C.4": 0.8},
        kind="effect",
    ),
    Clue(
        "the run hangs",
        r"""\bhang
\bhung
\bstuck
freez
<froze>
dead ?-?lock
blocks? (forever|indefinite)
never (finish|return|complete|end|start|proceed|reach)
(does|do|did|can|could)(n't| not|not) (exit|finish|terminate|return|end|stop|quit)\b
(can't|cannot|could not) (exit|finish|terminate|quit)\b
fails? to sync
wait\w* (forever|indefinitely|for a long)
(nothing|not) (proceed|progress|happen|mov|respond)
no progress
seems to (wait|stop)
stops? responding""",
        {"D.2.1": 2.2, "B.2": 2.0, "C.4": 1.2},
        kind="complaint",
    ),
    Clue(
        "the run hangs during training",
        r"""<when><40.><training><50.><hang>
<hang><40.><when><40.><training>
(random|sometimes|occasional|intermittent)\w*<40.><hang>""",
        {"D.2.1": 2.2, "B.2": -0.3},
        kind="complaint",
    ),
    Clue(
        "saving a checkpoint hangs",
        r"""(\bsav|checkpoint)\w*<40><hang>
<hang><40>(\bsav|checkpoint)""",
        {"D.2.1": 1.6, "D.1.6": 2.0},
        kind="complaint",
    ),
    Clue(
        "something takes longer than its limit",
        r"time ?out\ntimed? out",
        {"B.2": 0.9, "D.2.1": 0.6, "C.4": 0.4, "B.1": 0.3},
        kind="context",
    ),
    Clue(
        "processes share one device, or do not use the devices they should",
        r"""(same|only (one|1|a single)|just one|first) (gpu|device|card|cuda)
(extra|several|multiple|more|additional|many|all) (python )?process\w* (on|in|at|use|run)\b
(on|in|use|uses|using|to) (the )?(gpu|device|card)s? ?:?#?0\b
not (us(e|ing)|utiliz\w+|run\w*|train\w*|work\w*)( on| with)? (\w+ ){0,3}<device>
only (use|uses|using|run|runs|works?|train\w*|see|sees|detect\w*)\b
does(n't| not) (use|utilize|see|detect|recogni[sz]e)<16>(gpu|device|card)
(uses?|using|runs?|running|train\w*) (on )?(the )?cpu\b
all (processes|ranks|workers)<40>(gpu|device|card)
(gpu|device|card)s? (is|are|was|were) (not )?(idle|used|utilized|empty|active)
which (gpu|device)""",
        {"D.2.2": 2.6, "D.1.3": 0.4, "D.2.3": 0.4},
        kind="complaint",
    ),
    Clue(
        "ranks are not connected: each runs as if it were alone",
        r"""size\(\)[^\n=]{0,24}\b1\b
rank\(\)[^\n=]{0,24}\b0\b
(world_?size|(?<![_ a-z])size)[^\n,;]{0,24}(is|returns?|==?|always|be) ?(always )?1\b
local_rank<40>(always|all) (0|zero)
(run|train|execut|launch|print)\w*<30>(separate|independent|twice|\d+ (times|copies)|individual)
(each|every) (process|rank|worker|node|gpu)<40>\b(all|whole|full|entire|same|own)\b
(same|identical) (data|batch|sample|images)
not (synchroni[sz]\w*|sync\w*|distributed|in parallel)
one after (the other|another)
replicated
(gpu|device|cuda) ?:?#?0 (has|holds|runs|gets|with|shows) \w+ process
instead of being (distributed|split|shared|parallel)
imbalanced? """,
        {"D.2.2": 2.6, "D.2.3": 0.5, "D.2.4": 0.3},
        kind="complaint",
    ),
    Clue(
        "ranks hold different gradients or weights",
        r"""(gradient|grad|weight|parameter)s?<50><differ>
(differ\w*|not the same|unequal|inconsistent)<30>(gradient|grad\b|grads|weight|parameter)""",
        {"D.2.2": 1.5, "D.2.4": 1.6, "D.2.5": 0.4},
        kind="complaint",
    ),
    Clue(
        "training is slower than it should be",
        r"""\bslow
speed-?\s?up
speedup
(poor|bad|weak|strong|linear|near-linear) scal
scal(es?|ing|ability) (poor|bad|efficien|well|linear|factor|performance|problem|issue)
scal(es?|ing) (out|to \d|from \d|is|beyond)\b
scalability
throughput
\bfaster
(images?|img|samples|examples|tokens)[ /](per |a )?s(ec)?\b
(images?|img|imgs|samples)/sec
bottleneck
efficien
(takes?|took|taking|costs?|needs?)<30>(long|time\b|more|hours|minutes|\d+ ?s|secs)
long time
performance (drop|decreas|degrad|issue|problem|loss|is|of|gap|drops|worse|dramatic|bad|poor|not)
(bad|poor|low|worse|lower) (performance|utili[sz]ation|speed|usage|gpu)
(low|high|gpu|cpu) (util|usage)
no (speed|improvement|acceleration|gain)
latency
bandwidth
(not|n't)<30>(faster|accelerat|speed)
(time|second|sec|min)\w* (per|an?|for (one|an?|each)) (epoch|step|iteration|batch)
epoch takes""",
        {"D.2.3": 2.8, "D.2.2": 0.2},
        kind="complaint",
    ),
    Clue(
        "a value that a rank prints or uses is not the expected one",
        r"""<value>s?<50><wrong>
(not|n't)<16>(give|return|produce|compute|get|reduc|averag|sum)\w*<20>(correct|right|expected|same|result|tensor|value)
summed (rather than|instead of)
not averag
times too (large|small|big|high|low)
(same|identical) (answer|result|output|value|number)s?\b
n't <12>(reduc|averag|sum|broadcast)\w*\b
(differ\w*|wrong|incorrect|unexpected|inconsistent|strange|weird)<24>(<value>|behavio)
(print|log|output|display)\w*<30>(twice|multiple|several|\d+ times|duplicate|each rank|every rank)
timeline
expect\w*<80.>\bbut\b
should (be|return|print|have)<60.>\bbut\b
reproducib
non-?determinis
\bnan\b
\bnans\b""",
        {"D.2.4": 2.2, "D.2.5": 0.5},
        kind="complaint",
    ),
    Clue(
        "training does not converge as it does on one device",
        r"""converg
diverg
\b(accuracy|acc|quality|loss|score|bleu|model|results?)\b<50><worse>
(does|is|do|did)(n't| not) (learn|improve|train|go down|decrease)\b
(not|n't) (as )?good
(accuracy|quality|score|bleu)<40>\b(low|only \d)
(low|lower|less|different|worse|bad|poor) (accuracy|quality|score|convergence)
hyper-?parameter
loss (is |becomes |goes |turns )?(to )?(nan|inf|explod)
learning rate<40>(scale|scaling|warm|multipl|linear|adjust)""",
        {"D.2.5": 3.4, "D.2.4": 1.0},
        kind="complaint",
    ),
    Clue(
        "messages are printed too often, or hide others",
        r"""(silence|suppress|too many|get rid of|flood\w*) <12>(warning|message|log|output)
(warning|message|log line)s? (is|are|gets?|keeps?) (being )?(print|repeat|show|duplicat|display)""",
        {"D.2.6": 2.6, "D.2.4": 0.8},
        kind="complaint",
    ),
    Clue(
        "",
        r"""\bepochs?\b
\biterations?\b
\bsteps?\b
loss\.backward
optimizer\.step
train_step
train_on_batch
\.fit\(
\bvalidation
\bevaluat""",
        {"D.2.1": 0.5, "D.2.3": 0.3, "D.2.4": 0.3, "D.2.5": 0.4, "D.1.4": 0.3, "D.1.1": 0.2,
         "D.1.2": 0.2, "B.1": -0.3, "B.2": -0.4, "A.1": -0.4},
        kind="context",
    ),
)  # fmt: skip
