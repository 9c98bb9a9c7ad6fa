"""The published taxonomy of distributed-training faults: symptoms, fix patterns, and their counts.

Xuanzhe Liu, Diandian Gu, Zhenpeng Chen, Jinfeng Wen, Zili Zhang, Yun Ma, Haoyu Wang, Xin Jin:
"Rise of Distributed Deep Learning Training in the Big Model Era: From a Software Engineering
Perspective", ACM TOSEM, 2023 (arXiv 2112.06222). The CSV files hold counts aggregated from the
study's public labels: 637 faults and 494 how-to questions, reported for PyTorch, TensorFlow, Keras
and Horovod. They are facts of the study; the wording of everything else is ours.
"""

from .loader import (
    FixPattern,
    HowToTopic,
    Stage,
    Symptom,
    UnknownSymptom,
    fix_patterns,
    fixes,
    howto_topics,
    stages,
    symptom,
    symptoms,
)

__all__ = [
    "FixPattern",
    "HowToTopic",
    "Stage",
    "Symptom",
    "UnknownSymptom",
    "fix_patterns",
    "fixes",
    "howto_topics",
    "stages",
    "symptom",
    "symptoms",
]
