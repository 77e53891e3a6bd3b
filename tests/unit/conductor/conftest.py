from tests.support.small_cloud import small_cloud as small_cloud
