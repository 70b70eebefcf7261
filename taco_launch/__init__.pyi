from taco_launch.api import Cluster as Cluster
from taco_launch.job import Job as Job
from taco_launch.model.job_request import JobRequest as JobRequest

__version__: str
